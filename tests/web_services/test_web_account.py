"""An account of a service over HTTP: errors of answers, waiting times, and secrets that are never shown."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.platform_kit.connections import Connections, HealthState
from nni_manager.web_services.account import Refused, Signature, WebAccount, WebLease, retry_after_s
from nni_manager.web_services.pacing import Pacing
from tests.certificates import Authority

pytestmark = pytest.mark.unit

SECRET = "s3cr3t-t0ken"
Handler = Callable[[httpx.Request], httpx.Response]


class Account(WebAccount):
    async def signature_of(self, credential: str) -> Signature:
        self.secrets.keep(credential)
        return Signature(headers={"Authorization": f"Bearer {credential}"}, params={"password": credential})

    async def try_out(self, signature: Signature) -> None:
        await self.ask("GET", "me", signature=signature)


def account(handler: Handler, **paces: Pacing) -> Account:
    transport = httpx.MockTransport(handler)
    return Account("web:test", name="Test", base_url="http://test/api", paces=paces, transport=transport)


def answering(*answers: tuple[int, Any]) -> Handler:
    """The last one again and again."""
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        status, body = left.pop(0) if len(left) > 1 else left[0]
        return httpx.Response(status, json=body) if not isinstance(body, str) else httpx.Response(status, text=body)

    return answer


@asynccontextmanager
async def asked(handler: Handler, **paces: Pacing) -> Any:
    one = account(handler, **paces)
    await one.use(SECRET)
    try:
        yield one
    finally:
        await one.close()


@pytest.mark.parametrize("status", [408, 500, 502, 503])
async def test_server_error_leaves_the_outcome_open(status: int) -> None:
    async with asked(answering((status, {"message": f"trouble with {SECRET}"}))) as one:
        with pytest.raises(PlatformUnavailable) as raised:
            await one.ask("POST", "jobs")
    assert not raised.value.refused
    assert "trouble with ***" in str(raised.value)
    assert one.health.state is HealthState.DOWN


async def test_refusal_has_code_and_message_of_service() -> None:
    async with asked(answering((409, {"code": "ConflictJobError", "message": "it exists"}))) as one:
        with pytest.raises(Refused) as raised:
            await one.ask("POST", "jobs")
    assert (raised.value.status, raised.value.code, raised.value.words) == (409, "ConflictJobError", "it exists")
    assert one.health.state is HealthState.UP


async def test_answer_of_a_proxy_is_unavailable() -> None:
    async with asked(answering((200, "<html>login</html>"))) as one:
        with pytest.raises(PlatformUnavailable, match="did not answer with JSON"):
            await one.ask_json("GET", "jobs")
    async with asked(lambda _: httpx.Response(302, headers={"Location": "http://login/?x=1"})) as one:
        with pytest.raises(PlatformUnavailable, match="redirects to http://login/;"):
            await one.ask("GET", "jobs")


@pytest.mark.parametrize("told", ["30", "Thu, 01 Jan 1970 00:00:40 GMT"])
async def test_both_forms_of_retry_after(told: str) -> None:
    assert retry_after_s(told, now_s=10.0) == 30.0


@pytest.mark.parametrize("told", [None, "", "soon", "inf", "nan"])
async def test_malformed_retry_after(told: str | None) -> None:
    found = retry_after_s(told, now_s=10.0)
    assert found is None or found == 0


@pytest.mark.looptime
async def test_calls_wait_for_retry_after() -> None:
    loop, times = asyncio.get_running_loop(), []

    def limited(request: httpx.Request) -> httpx.Response:
        times.append(loop.time())
        return httpx.Response(200 if len(times) > 1 else 429, headers={"Retry-After": "12"}, json={})

    async with asked(limited, list=Pacing(calls=10, per_s=1, burst=10)) as one:
        with pytest.raises(PlatformUnavailable) as raised:
            await one.ask("GET", "jobs", pace="list")
        assert raised.value.refused
        await asyncio.gather(*(one.ask("GET", "jobs", pace="list") for _ in range(2)))
        with pytest.raises(PlatformUnavailable) as raised:
            one._paces["list"].back_off(60)
            await one.ask("GET", "jobs", pace="list")
        assert raised.value.refused, "it was not even asked"
    assert min(times[1:]) - times[0] >= 12


async def test_a_refused_credential_is_replaced_by_a_new_one() -> None:
    good = {"old"}

    def guard(request: httpx.Request) -> httpx.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        return httpx.Response(200 if token in good else 401, json={"message": f"bad token {token}"})

    connections = Connections()
    lease = WebLease(connections, "web:test", "owner", lambda: account(guard), "old")
    await lease.enter()
    try:
        await lease.call(lambda one: one.ask("GET", "jobs"))
        good.add("new")
        good.remove("old")
        with pytest.raises(BadCredentials) as raised:
            await lease.call(lambda one: one.ask("GET", "jobs"))
        assert "old" not in str(raised.value)
        lease.renew("new")
        assert (await lease.call(lambda one: one.ask("GET", "jobs"))).status_code == 200
    finally:
        await lease.leave()
    assert connections.health() == {}


async def test_good_credential_serves_two_refused_calls() -> None:
    good = {"one", "two"}

    async def guard(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0.01)  # both have asked by then
        token = request.headers["Authorization"].removeprefix("Bearer ")
        return httpx.Response(200 if token in good else 401, json={})

    connections = Connections()
    first, second = (
        WebLease(connections, "web:test", name, lambda: account(guard), name)  # type: ignore[arg-type]
        for name in ("one", "two")
    )
    await first.enter()
    await second.enter()
    try:
        for lease in (first, second):
            await lease.call(lambda one: one.ask("GET", "jobs"))
        good.remove("one")
        answers = await asyncio.gather(*(lease.call(lambda one: one.ask("GET", "jobs")) for lease in (first, second)))
        assert [answer.status_code for answer in answers] == [200, 200]
    finally:
        await first.leave()
        await second.leave()


async def test_no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with asked(answering((200, {}))) as one:
        await one.ask("GET", "jobs", params={"limit": "7"})
        assert SECRET not in repr(one.signature)
    assert "http://test/api/jobs" in caplog.text
    assert SECRET not in caplog.text


async def test_private_authority_is_trusted_by_ssl_cert_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("127.0.0.1"))
    over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _answer_with_nothing(reader, writer)
        over.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(PlatformUnavailable, match="set SSL_CERT_FILE"):
        await _asked_once(url)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    assert (await _asked_once(url)).status_code == 200
    await over.wait()
    server.close()


async def _asked_once(url: str) -> httpx.Response:
    asked = Account("web:test", name="Test", base_url=url, paces={})
    try:
        return await asked.ask("GET", "me")
    finally:
        await asked.close()


async def _answer_with_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
