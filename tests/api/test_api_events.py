"""The stream of an experiment's states."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import httpx
import pytest

from nni_manager.api import events
from nni_manager.api.application import create_application
from nni_manager.api.events import EventStream
from tests.api.world import World

pytestmark = pytest.mark.unit


class Stream:
    """One request, answered bit by bit; a client of httpx would wait for the whole answer."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self._parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.gone = asyncio.Event()
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self._parts.put_nowait(message)

    async def part(self) -> str:
        """The next piece of the body; empty at its end."""
        return str((await self._parts.get())["body"].decode())

    async def state(self) -> dict[str, Any]:
        kind, data, *rest = (await self.part()).split("\n")
        assert kind == "event: state" and rest == ["", ""]
        state: dict[str, Any] = json.loads(data.removeprefix("data: "))
        return state


@asynccontextmanager
async def following(world: World, id: str) -> AsyncIterator[Stream]:
    stream = Stream()
    scope = {"type": "http", "method": "GET", "path": f"/api/v1/experiments/{id}/events", "query_string": b"",
             "headers": [], "server": ("/run/socket", None), "scheme": "http", "http_version": "1.1"}  # fmt: skip
    async with asyncio.TaskGroup() as group:
        group.create_task(create_application(world.context)(scope, stream.receive, stream.send))  # type: ignore[arg-type]
        yield stream


async def create(api: httpx.AsyncClient, world: World) -> str:
    return str((await api.post("/api/v1/experiments", json=world.config())).json()["id"])


async def test_a_closed_experiment_has_one_state(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    answer = await api.get("/api/v1/experiments/seeded/events")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    _, data, *rest = answer.text.split("\n")
    described = (await api.get("/api/v1/experiments/seeded")).json()
    del described["config"], described["references"]
    assert json.loads(data.removeprefix("data: ")) == described and rest == ["", ""]


async def test_changes_come_until_it_is_stopped(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    async with following(world, id_) as stream:
        assert (await stream.state())["trialsMade"] == 0
        await api.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 1}})
        while (state := await stream.state())["counts"] != {"RUNNING": 1}:
            assert state["status"] == "RUNNING"
        await api.post(f"/api/v1/experiments/{id_}/stop")
        while (state := await stream.state())["status"] != "STOPPED":
            assert state["status"] in ("RUNNING", "STOPPING")
        assert state["counts"] == {"USER_CANCELED": 1}
        assert await stream.part() == ""


async def test_head_of_it_ends_at_once(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    async with asyncio.timeout(1):
        head = await api.head(f"/api/v1/experiments/{id_}/events")
    assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


@pytest.mark.parametrize("end", ["daemon", "client"])
async def test_it_ends_with_the_daemon_or_the_client(api: httpx.AsyncClient, world: World, end: str) -> None:
    id_ = await create(api, world)
    async with following(world, id_) as stream:
        await stream.state()
        (world.stopping if end == "daemon" else stream.gone).set()
        assert await stream.part() == ""


async def test_silence_is_broken_by_comments(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.01)
    id_ = await create(api, world)
    async with following(world, id_) as stream:
        await stream.state()
        while await stream.part() != ":\n\n":
            pass
        stream.gone.set()


class Counter:
    """A subject that changes whenever it is read."""

    def __init__(self, states: int) -> None:
        self._left = states
        self._news = asyncio.Event()
        self.read_at: list[float] = []

    def watch(self) -> AbstractContextManager[asyncio.Event]:
        return nullcontext(self._news)

    async def read(self) -> tuple[str, bool]:
        self.read_at.append(asyncio.get_running_loop().time())
        self._left -= 1
        self._news.set()
        return "{}", self._left == 0


async def test_there_are_at_most_five_a_second() -> None:
    counter, stream = Counter(4), Stream()
    await EventStream(counter, asyncio.Event())({"type": "http"}, stream.receive, stream.send)  # type: ignore[arg-type]
    gaps = [later - earlier for earlier, later in zip(counter.read_at, counter.read_at[1:], strict=False)]
    assert len(gaps) == 3 and min(gaps) >= events.PAUSE_S * 0.95
