"""The guard: users, host names, origins, tokens and sizes of bodies."""

from __future__ import annotations

import logging
import os
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers

from nni_manager.api.access import guard, login
from nni_manager.api.access.guard import BODY_LIMIT, HARDENING, SESSION_PATH, Guard, LocalUsers
from nni_manager.api.access.login import SESSION_S, Sessions, Tokens
from nni_manager.api.access.sparing import FAULT, Sparing
from nni_manager.api.application import create_application
from tests.api.world import World, raw_get

pytestmark = pytest.mark.unit

TOKEN = "correct horse battery"
EXPERIMENTS = "/api/v1/experiments"
EVIL = [(b"host", b"evil.example")]


# ------------------------------------------------------------------------------------------------ host and origin


@pytest.mark.parametrize(
    "host", ["localhost:8080", "localhost", "127.0.0.1:9", "[::1]:8080", "LOCALHOST.:8080", "box.example"]
)
async def test_own_host_names_are_accepted(world: World, host: str) -> None:
    application = create_application(world.context, host="box.example")
    async with world.calling(application, headers={"Host": host}) as client:
        assert (await client.get(EXPERIMENTS)).status_code == 200


@pytest.mark.parametrize("uid", [os.geteuid() + 1, None])
async def test_other_local_users_get_advice(world: World, uid: int | None) -> None:
    """`uid`: None: a connection with an unknown peer."""
    async with world.calling(uid=uid) as client:
        for path in ("/", EXPERIMENTS, "/metrics", "/nothing"):
            answer = await client.get(path)
            assert answer.status_code == 403
            assert all(word in answer.json()["error"] for word in ("--token", "NNI_MANAGER_TOKEN", "allowLocalUsers"))
        assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize(("allowed", "status"), [(True, 200), (frozenset({4711}), 200), (frozenset({4712}), 403)])
async def test_users_that_are_allowed_are_let_in(world: World, allowed: bool | frozenset[int], status: int) -> None:
    application = create_application(world.context, users=LocalUsers(allowed))
    async with world.calling(application, uid=4711) as client:
        assert (await client.get(EXPERIMENTS)).status_code == status


async def test_unknown_peer_is_refused(world: World) -> None:
    assert (await raw_get(create_application(world.context), EXPERIMENTS, server=("127.0.0.1", 8080))).status == 403


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.0.0.1:8080", "[::2]", ""])
async def test_unknown_host_name_is_refused(world: World, host: str) -> None:
    async with world.calling(headers={"Host": host or " "}) as client:
        answer = await client.get(EXPERIMENTS)
        assert answer.status_code == 403 and "is not a name of this daemon" in answer.json()["error"]
        assert (await client.get("/healthz")).status_code == 200


async def test_connection_address_is_an_accepted_host(world: World) -> None:
    async with world.calling() as client:
        assert (await client.get(f"http://10.1.2.3:8080{EXPERIMENTS}")).status_code == 200


async def test_two_hosts_are_refused(world: World) -> None:
    async with world.calling() as client:
        headers = [("Host", "localhost"), ("Host", "evil.example")]
        assert (await client.get(EXPERIMENTS, headers=headers)).status_code == 400


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8080", 200),
        ("http://localhost:9090", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("", 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_pages_of_other_sites_are_refused(world: World, method: str, origin: str, status: int) -> None:
    async with world.calling(headers={"Origin": origin}) as client:
        path = EXPERIMENTS if method == "GET" else f"{EXPERIMENTS}/stop"
        answer = await client.request(method, path)
        assert answer.status_code == status, answer.text
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("site", "mode", "destination", "status"),
    [
        ("same-origin", "cors", "empty", 200),
        ("none", "navigate", "document", 200),
        ("cross-site", "navigate", "document", 200),  # a link
        ("same-site", "navigate", "document", 200),
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "no-cors", "image", 403),
        ("same-site", "no-cors", "script", 403),  # another port of this machine
        ("cross-site", "no-cors", "empty", 403),
    ],
)
async def test_embedding_by_other_pages_is_refused(
    world: World, site: str, mode: str, destination: str, status: int
) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": destination}
    async with world.calling(headers=headers) as client:
        assert (await client.get(EXPERIMENTS)).status_code == status


@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200)])
async def test_a_form_of_another_page_is_refused(world: World, site: str, status: int) -> None:
    """The browser reports a navigation, as with a link, and some send no Origin with it."""
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with world.calling(headers=headers) as client:
        assert (await client.post(f"{EXPERIMENTS}/stop")).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example", "Authorization": f"Bearer {TOKEN}"}, 200),
        ({}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Content-Length": str(BODY_LIMIT + 1)}, 413),
    ],
    ids=str,
)
async def test_every_answer_is_hardened(
    closed_listener: httpx.AsyncClient, headers: dict[str, str], status: int
) -> None:
    answer = await closed_listener.get(EXPERIMENTS, headers=headers)
    assert answer.status_code == status
    assert {name: answer.headers.get(name) for name in HARDENING} == HARDENING


async def test_unix_socket_needs_no_token(world: World) -> None:
    application = create_application(world.context, token=TOKEN)
    assert (await raw_get(application, EXPERIMENTS, EVIL, ("/run/control.sock", None))).status == 200


@pytest.mark.parametrize("server", [None, ("127.0.0.1", 8080)])
async def test_unknown_server_address_is_checked(world: World, server: object) -> None:
    assert (await raw_get(create_application(world.context), EXPERIMENTS, EVIL, server)).status == 403


async def test_websockets_are_closed() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def nobody(*_: Any) -> None:
        raise AssertionError("called")

    await Guard(nobody)({"type": "websocket"}, nobody, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


# ------------------------------------------------------------------------------------------------ token


@pytest.fixture
async def closed_listener(world: World) -> AsyncIterator[httpx.AsyncClient]:
    async with world.calling(create_application(world.context, token=TOKEN)) as client:
        yield client


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        ("", 401),
        ("Bearer", 401),
        ("Bearer wrong", 401),
        (f"Bearer {TOKEN} ", 200),
        (f"Basic {TOKEN}", 401),
        ("Bearer k\u00e4se", 401),
        (f"Bearer {TOKEN}x", 401),
    ],
)
async def test_token_in_authorization_header(closed_listener: httpx.AsyncClient, header: str, status: int) -> None:
    headers = {"Authorization": header.encode("latin-1")} if header else {}
    answer = await closed_listener.get(EXPERIMENTS, headers=headers)
    assert answer.status_code == status
    assert TOKEN not in answer.text
    if status == 401:
        assert answer.headers["WWW-Authenticate"] == "Bearer" and "token" in answer.json()["error"]


async def test_probes_need_no_token(closed_listener: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/readyz"):
        assert (await closed_listener.get(path)).status_code == 200


async def test_a_browser_gets_a_cookie_for_the_token(closed_listener: httpx.AsyncClient) -> None:
    answer = await closed_listener.get(EXPERIMENTS, params={"status": "DONE", "token": TOKEN})
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{EXPERIMENTS}?status=DONE")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower() and "horse" not in cookie
    assert (await closed_listener.get(EXPERIMENTS)).status_code == 200
    (name,) = closed_listener.cookies
    closed_listener.cookies.set(name, TOKEN, domain="localhost.local")
    closed_listener.cookies.clear()
    assert (await closed_listener.get(EXPERIMENTS, headers={"Cookie": f"{name}={TOKEN}"})).status_code == 401


@pytest.mark.parametrize(
    ("headers", "is_secure"),
    [
        ({}, False),
        ({"X-Forwarded-Proto": "http"}, False),
        ({"X-Forwarded-Proto": "https"}, True),
        ({"X-Forwarded-Proto": "HTTPS, http"}, True),
        ({"X-Forwarded-Proto": "http, https"}, False),
    ],
)
async def test_behind_tls_a_browser_sends_the_cookie_nowhere_else(
    closed_listener: httpx.AsyncClient, headers: dict[str, str], is_secure: bool
) -> None:
    by_link = await closed_listener.get(EXPERIMENTS, params={"token": TOKEN}, headers=headers)
    cookie = by_link.headers["Set-Cookie"]
    assert ("secure" in cookie.lower()) is is_secure
    closed_listener.cookies.clear()
    by_form = await closed_listener.post(SESSION_PATH, data={"token": TOKEN}, headers=headers)
    assert by_form.status_code == 303 and ("secure" in by_form.headers["Set-Cookie"].lower()) is is_secure
    closed_listener.cookies.clear()
    ended = await closed_listener.delete(SESSION_PATH, headers={**headers, "Cookie": cookie.partition(";")[0]})
    assert ("secure" in ended.headers["Set-Cookie"].lower()) is is_secure


async def test_cookie_is_secure_on_tls_listener(world: World) -> None:
    transport = httpx.ASGITransport(create_application(world.context, token=TOKEN))
    async with httpx.AsyncClient(transport=transport, base_url="https://localhost:8080") as client:
        answer = await client.get(EXPERIMENTS, params={"token": TOKEN})
    assert "; secure" in answer.headers["Set-Cookie"].lower()


def test_cookie_is_random_and_hides_token() -> None:
    names = {Tokens(TOKEN).sessions.begin() for _ in range(3)}
    assert len(names) == 3 and all(len(name) >= 32 for name in names)


async def logged_in(client: httpx.AsyncClient) -> str:
    """The cookie of a new session, as a browser sends it."""
    answer = await client.get(EXPERIMENTS, params={"token": TOKEN})
    client.cookies.clear()
    return answer.headers["Set-Cookie"].partition(";")[0]


async def test_a_session_is_of_one_listener_of_one_daemon(world: World) -> None:
    listeners = [create_application(world.context, token=TOKEN) for _ in range(2)]
    async with world.calling(listeners[0]) as first, world.calling(listeners[1]) as second:
        cookie = await logged_in(first)
        assert cookie.startswith("nni_manager_8080=")
        assert (await first.get(EXPERIMENTS, headers={"Cookie": cookie})).status_code == 200
        assert (await second.get(EXPERIMENTS, headers={"Cookie": cookie})).status_code == 401


async def test_a_session_can_be_ended(closed_listener: httpx.AsyncClient) -> None:
    mine, another, third = [await logged_in(closed_listener) for _ in range(3)]

    async def statuses() -> list[int]:
        cookies = (mine, another, third)
        return [(await closed_listener.get(EXPERIMENTS, headers={"Cookie": one})).status_code for one in cookies]

    assert (await closed_listener.delete(SESSION_PATH)).status_code == 401
    answer = await closed_listener.delete(SESSION_PATH, headers={"Cookie": mine})
    assert answer.status_code == 204 and 'nni_manager_8080=""' in answer.headers["Set-Cookie"]
    assert await statuses() == [401, 200, 200]
    assert (await closed_listener.delete(SESSION_PATH, headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 204
    assert await statuses() == [401, 401, 401]


# ------------------------------------------------------------------------------------------------ reading only

READ_TOKEN = "correct horse cart"


@pytest.fixture
async def library(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """A listener with a read token in addition to its own."""
    application = create_application(world.context, token=TOKEN, read_token=READ_TOKEN)
    async with world.calling(application) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_reader_sees_all_and_changes_nothing(library: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    for path in (EXPERIMENTS, f"{EXPERIMENTS}/seeded", f"{EXPERIMENTS}/seeded/trials", "/metrics"):
        assert (await library.get(path, headers=bearer(READ_TOKEN))).status_code == 200
    changes = [
        ("POST", EXPERIMENTS),
        ("POST", f"{EXPERIMENTS}/seeded/resume"),
        ("PUT", f"{EXPERIMENTS}/seeded"),
        ("DELETE", f"{EXPERIMENTS}/seeded"),
        ("POST", "/experiments/seeded/resume"),
        ("DELETE", "/experiments/seeded/api/v1/nni/experiment"),
    ]
    for method, path in changes:
        answer = await library.request(method, path, headers=bearer(READ_TOKEN))
        assert answer.status_code == 403 and "may only read" in answer.json()["error"], path
    assert (await library.get(f"{EXPERIMENTS}/seeded", headers=bearer(TOKEN))).json()["status"] == "STOPPED"
    assert (await library.delete(f"{EXPERIMENTS}/seeded", headers=bearer(TOKEN))).status_code < 300


async def test_a_session_has_the_role_of_its_token(library: httpx.AsyncClient) -> None:
    """By link and by form; the form comes again for another role."""
    own = {"Origin": "http://localhost:8080"}
    await library.get(EXPERIMENTS, params={"token": READ_TOKEN})
    assert (await library.post(EXPERIMENTS, json={}, headers=own)).status_code == 403
    again = await library.get(SESSION_PATH, headers={"Accept": "text/html"})
    assert again.status_code == 200 and 'name="token"' in again.text
    await library.post(SESSION_PATH, data={"token": TOKEN}, headers=own)
    assert (await library.post(EXPERIMENTS, json={}, headers=own)).status_code == 400
    await library.post(SESSION_PATH, data={"token": READ_TOKEN}, headers=own)
    assert (await library.post(EXPERIMENTS, json={}, headers=own)).status_code == 403


async def test_a_reader_ends_sessions_of_readers_alone(library: httpx.AsyncClient) -> None:
    cookies = []
    for token in (TOKEN, READ_TOKEN):
        answer = await library.get(EXPERIMENTS, params={"token": token})
        library.cookies.clear()
        cookies.append(answer.headers["Set-Cookie"].partition(";")[0])
    assert (await library.delete(SESSION_PATH, headers=bearer(READ_TOKEN))).status_code == 204
    statuses = [(await library.get(EXPERIMENTS, headers={"Cookie": cookie})).status_code for cookie in cookies]
    assert statuses == [200, 401]


async def test_a_change_with_a_cookie_names_its_page(library: httpx.AsyncClient) -> None:
    """Of another site's page a browser sends Origin; one that sends neither header is not let through."""
    await library.get(EXPERIMENTS, params={"token": TOKEN})
    for headers, status in [
        ({}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://localhost:8080"}, 400),
        ({"Sec-Fetch-Site": "same-origin"}, 400),
    ]:
        assert (await library.post(EXPERIMENTS, json={}, headers=headers)).status_code == status, headers


@pytest.mark.parametrize("shown", ["", "wrong", READ_TOKEN[:-1]])
async def test_what_is_neither_token_is_refused(library: httpx.AsyncClient, shown: str) -> None:
    assert (await library.get(EXPERIMENTS, headers=bearer(shown))).status_code == 401
    assert (await library.get(EXPERIMENTS, params={"token": shown})).status_code == 401


async def test_without_a_token_for_reading_an_empty_one_is_none(closed_listener: httpx.AsyncClient) -> None:
    assert (await closed_listener.get(EXPERIMENTS, params={"token": ""})).status_code == 401


def test_unused_session_expires() -> None:
    now_s = [0.0]
    sessions = Sessions(lambda: now_s[0])
    headers = Headers({"cookie": f"a={sessions.begin()}"})
    for now_s[0] in (SESSION_S, 2 * SESSION_S):
        assert sessions.shown(headers, "a")
    now_s[0] += SESSION_S + 1
    assert sessions.shown(headers, "a") is None
    assert sessions.shown(Headers(), "a") is None


def test_sessions_are_bounded_in_number() -> None:
    sessions = Sessions()
    names = [sessions.begin() for _ in range(1001)]
    shown = [sessions.shown(Headers({"cookie": f"a={name}"}), "a") for name in (names[0], names[1], names[-1])]
    assert shown == [None, names[1], names[-1]]


@pytest.mark.parametrize(("method", "token"), [("GET", "wrong"), ("POST", TOKEN), ("GET", "")])
async def test_wrong_token_gets_no_cookie(closed_listener: httpx.AsyncClient, method: str, token: str) -> None:
    answer = await closed_listener.request(method, "/api/v1/experiments/stop", params={"token": token})
    assert answer.status_code == 401 and "Set-Cookie" not in answer.headers


async def test_a_browser_without_a_token_gets_a_form(closed_listener: httpx.AsyncClient) -> None:
    asked = await closed_listener.get("/experiments/a?order=-final", headers={"Accept": "text/html,*/*;q=0.8"})
    assert asked.status_code == 401 and asked.headers["Content-Type"].startswith("text/html")
    assert 'action="/api/v1/session"' in asked.text and 'value="/experiments/a?order=-final"' in asked.text
    script = await closed_listener.get('/experiments/"><script>', headers={"Accept": "text/html"})
    assert "<script>" not in script.text


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/experiments/a?x=1", "/experiments/a?x=1"),
        ("//evil.example/", "/"),
        ("/\\evil.example/", "/"),
        ("https://evil.example/x", "/x"),
        ("//[", "/"),
        ("", "/"),
    ],
)
async def test_the_form_begins_a_session(closed_listener: httpx.AsyncClient, target: str, path: str) -> None:
    wrong = await closed_listener.post(SESSION_PATH, data={"token": "wrong", "next": target})
    assert wrong.status_code == 401 and "Wrong token." in wrong.text and "Set-Cookie" not in wrong.headers
    right = await closed_listener.post(SESSION_PATH, data={"token": TOKEN, "next": target})
    assert (right.status_code, right.headers["Location"]) == (303, path)
    assert (await closed_listener.get(EXPERIMENTS)).status_code == 200
    closed_listener.cookies.clear()
    foreign = {"Origin": "http://evil.example"}
    assert (await closed_listener.post(SESSION_PATH, data={"token": TOKEN}, headers=foreign)).status_code == 403
    long = await closed_listener.post(SESSION_PATH, data={"token": TOKEN, "next": "x" * 20_000})
    assert long.status_code == 401


async def test_fault_of_the_guard_is_answered_and_logged_once_a_minute(
    closed_listener: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: str) -> str:
        raise ValueError("a fault")

    monkeypatch.setattr(guard, "_faults", Sparing(logging.getLogger("nni_manager.test")))
    monkeypatch.setattr(login, "_on_this_host", broken)
    for _ in range(3):
        answer = await closed_listener.post(SESSION_PATH, data={"token": "wrong"})
        assert (answer.status_code, answer.json()) == (500, {"error": FAULT})
        assert answer.headers["X-Frame-Options"] == HARDENING["X-Frame-Options"]
    assert [record.getMessage() for record in caplog.records] == [f"POST {SESSION_PATH} failed"]
    assert caplog.records[0].exc_info is not None


async def test_wrong_tokens_are_logged_once_a_minute(
    closed_listener: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = [0.0]
    sparing = Sparing(logging.getLogger("nni_manager.test"), lambda: now_s[0])
    monkeypatch.setattr(guard, "_wrong_tokens", sparing)
    await closed_listener.get(EXPERIMENTS)
    await closed_listener.get(EXPERIMENTS, headers={"Authorization": f"Bearer {TOKEN}"})
    assert caplog.records == []
    await closed_listener.get(EXPERIMENTS, headers={"Authorization": "Bearer guess"})
    await closed_listener.get("/", params={"token": "guess"})
    await closed_listener.post(SESSION_PATH, data={"token": "guess"})
    now_s[0] = 60
    await closed_listener.post(SESSION_PATH, data={"token": "guess"})
    first, second = [record.getMessage() for record in caplog.records]
    assert "wrong token from 127.0.0.1" in first and "(and 2 more" in second
    assert "guess" not in caplog.text


async def test_login_redirect_stays_on_this_host(closed_listener: httpx.AsyncClient) -> None:
    url = httpx.URL("http://localhost:8080").copy_with(raw_path=b"//evil.example/?token=correct+horse+battery")
    answer = await closed_listener.send(httpx.Request("GET", url))
    assert (answer.status_code, answer.headers["Location"]) == (303, "/evil.example/")


async def test_token_allows_any_host_but_no_other_origin(closed_listener: httpx.AsyncClient) -> None:
    headers = {"Host": "gpubox:8080", "Authorization": f"Bearer {TOKEN}"}
    assert (await closed_listener.get(EXPERIMENTS, headers=headers)).status_code == 200
    refused = await closed_listener.get(EXPERIMENTS, headers=headers | {"Origin": "http://evil.example"})
    assert refused.status_code == 403


def test_the_token_is_in_no_repr(world: World) -> None:
    guard = create_application(world.context, token=TOKEN)
    assert TOKEN not in repr(guard) + repr(world.context)


# ------------------------------------------------------------------------------------------------ size

SIZE = 60 * 1024 * 1024


async def chunks() -> AsyncIterator[bytes]:
    for _ in range(SIZE // 65536):
        yield b" " * 65536


@pytest.mark.parametrize("path", [EXPERIMENTS, f"{EXPERIMENTS}/seeded/import", "/api/v1/daemon/stop"])
@pytest.mark.parametrize("says_size", [True, False])
async def test_a_huge_body_costs_no_memory(world: World, path: str, says_size: bool) -> None:
    await world.add("seeded")
    headers = {"Content-Type": "application/json"} | ({"Content-Length": str(SIZE)} if says_size else {})
    async with world.calling() as client:
        tracemalloc.start()
        answer = await client.post(path, content=chunks(), headers=headers)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert answer.status_code == 413 and "8 MB" in answer.json()["error"]
    assert peak < 2 * BODY_LIMIT + 2**20  # the parts, and again when they are joined


async def test_a_body_at_the_limit_is_read(world: World) -> None:
    async with world.calling() as client:
        for size, status in ((BODY_LIMIT, 400), (BODY_LIMIT + 1, 413)):
            answer = await client.post(EXPERIMENTS, content=b" " * size, headers={"Content-Type": "application/json"})
            assert answer.status_code == status
