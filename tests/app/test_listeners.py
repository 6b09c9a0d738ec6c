"""Listeners over real sockets: opened, closed, opened again; pending requests at the end."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from nni_manager.app.listening.listeners import Listeners
from nni_manager.app.listening.ports import reserve

pytestmark = pytest.mark.unit

App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers the port of the request."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(scope["server"]).encode()})


class Stream:
    """A response that goes on until `over` is set."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.was_cancelled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first\n", "more_body": True})
        try:
            await self.over.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        await send({"type": "http.response.body", "body": b"last\n"})


@pytest.fixture
async def listeners() -> AsyncIterator[Listeners]:
    listeners = Listeners(hello)
    yield listeners
    await listeners.close()


async def test_a_port_is_opened_closed_and_opened_again(listeners: Listeners) -> None:
    reserved = reserve("127.0.0.1", 0)
    port = int(reserved.address.rpartition(":")[2])
    for _ in range(3):
        await listeners.open_port("service", reserved)
        assert [(listener.kind, listener.address) for listener in listeners.open] == [
            ("service", f"http://127.0.0.1:{port}")
        ]
        assert await _get(f"http://127.0.0.1:{port}/") == f"('127.0.0.1', {port})"
        await listeners.close()
        assert listeners.open == ()
        with pytest.raises(httpx.ConnectError):
            await _get(f"http://127.0.0.1:{port}/")
        reserved = reserve("127.0.0.1", port)
    reserved.give_back()


async def test_the_control_socket_is_its_owner_s_alone(listeners: Listeners, tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    path.write_text("left by a daemon that was killed")
    umask = os.umask(0)
    try:
        await listeners.open_control(path)
        assert os.umask(0) == 0, "what others are to find is as it was"
    finally:
        os.umask(umask)
    mode = path.stat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with httpx.AsyncClient(transport=transport, base_url="http://manager") as client:
        assert (await client.get("/")).text == f"('{path}', None)"
    await listeners.close()
    await listeners.close()
    assert not path.exists()


async def test_a_name_with_several_addresses_is_one_port(listeners: Listeners) -> None:
    reserved = reserve("localhost", 0)
    ports = {each.getsockname()[1] for each in reserved.sockets}
    assert len(ports) == 1
    await listeners.open_port("service", reserved)
    for each in reserved.sockets:
        host = f"[{each.getsockname()[0]}]" if each.family == socket.AF_INET6 else each.getsockname()[0]
        assert await _get(f"http://{host}:{next(iter(ports))}/")


async def test_stream_ends_with_its_last_event() -> None:
    stream = Stream()
    listeners, address = await _open(stream)
    async with httpx.AsyncClient(trust_env=False) as client, client.stream("GET", address) as response:
        lines = response.aiter_lines()
        assert await anext(lines) == "first"
        stream.over.set()
        took_s = await _timed(listeners.close())
        assert [line async for line in lines] == ["last"]
    assert took_s < 0.45 and not stream.was_cancelled


async def test_a_stream_that_does_not_end_is_ended() -> None:
    stream = Stream()
    listeners, address = await _open(stream)
    async with httpx.AsyncClient(trust_env=False) as client, client.stream("GET", address) as response:
        assert await anext(response.aiter_bytes()) == b"first\n"
        assert await _timed(listeners.close()) < 1
        await asyncio.sleep(0)  # the cancelled task's own turn
        assert stream.was_cancelled


async def test_pending_request_is_undone_and_answered_at_end(caplog: pytest.LogCaptureFixture) -> None:
    begun, undone = asyncio.Event(), asyncio.Event()

    async def works(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # the clean-up takes iterations of the loop
            undone.set()

    reserved = reserve("127.0.0.1", 0)
    listeners = Listeners(works)
    await listeners.open_port("service", reserved)
    async with httpx.AsyncClient(trust_env=False) as client:
        asking = asyncio.create_task(client.get(reserved.address))
        await begun.wait()
        await listeners.close()
        assert undone.is_set(), "the stores are closed next"
        answer = await asking
    assert (answer.status_code, "the daemon ended during" in answer.json()["error"]) == (503, True)
    assert caplog.text == ""


async def test_idle_connections_do_not_hold_the_end_up(listeners: Listeners) -> None:
    reserved = reserve("127.0.0.1", 0)
    await listeners.open_port("service", reserved)
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.get(reserved.address)
        assert await _timed(listeners.close()) < 0.45


async def _open(application: App) -> tuple[Listeners, str]:
    listeners, reserved = Listeners(application), reserve("127.0.0.1", 0)
    await listeners.open_port("service", reserved)
    return listeners, reserved.address


async def _get(url: str) -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(url)).text


async def _timed(action: Awaitable[None]) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    await action
    return clock() - began
