"""The stream of an experiment's states."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from nni_manager.api.application import create_application
from nni_manager.streams import event_stream
from tests.api.world import World
from tests.streams.stream import Stream

pytestmark = pytest.mark.unit


@asynccontextmanager
async def following(world: World, what: str, last: str = "") -> AsyncIterator[Stream]:
    """`what`: an experiment's id, or a path below that of experiments; `last`: the Last-Event-ID."""
    stream, place = Stream(), what if "events" in what else f"{what}/events"
    path, _, query = f"/api/v1/experiments/{place}".partition("?")
    headers = [(b"last-event-id", last.encode())] if last else []
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": headers,
        "server": ("/run/socket", None),
        "scheme": "http",
        "http_version": "1.1",
    }
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
    del described["config"], described["references"], described["variables"]
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


# Trials and results


async def test_trials_are_told_as_they_change(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    async with following(world, f"{id_}/trials/events") as stream:
        made = (await api.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 1}})).json()
        running = await stream.until("trial", id=made["id"], status="RUNNING")
        assert running["parameters"] == {"x": 1}
        await api.post(f"/api/v1/experiments/{id_}/trials/{made['id']}/kill")
        await stream.until("trial", id=made["id"], status="USER_CANCELED")
        await api.post(f"/api/v1/experiments/{id_}/stop")
        assert await stream.part() == "", "nothing else has changed"


async def test_trials_of_a_closed_experiment_come_once(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    listed = (await api.get("/api/v1/experiments/seeded/trials?limit=1000")).json()["trials"]
    async with following(world, "seeded/trials/events") as stream:
        assert await stream.events() == [("trial", one) for one in listed]
        assert await stream.part() == ""
    ended = len([one for one in listed if one["endedMs"] is not None])
    async with following(world, "seeded/trials/events", last=str(ended)) as stream:
        assert {data["status"] for _, data in await stream.events()} <= {"WAITING", "RUNNING", "UNKNOWN"}


@pytest.mark.parametrize("what", ["trials/events", "metrics/events"])
async def test_stream_restarts_after_a_future_id(world: World, what: str) -> None:
    """As of an experiment that had the same id, and was deleted."""
    await world.add("seeded")
    told = []
    for last in ("", "999"):
        async with following(world, f"seeded/{what}", last) as stream:
            told.append(await stream.events())
    assert told[0] and told[0] == told[1]


@pytest.mark.parametrize("page", [2, 1000])
async def test_results_come_once(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr("nni_manager.api.events._PAGE", page)
    await world.add("seeded")
    listed = (await api.get("/api/v1/experiments/seeded/metrics")).json()["metrics"]
    for what, last, expected in (
        ("metrics/events", "", listed),
        (f"metrics/events?after={listed[1]['id']}", "", listed[2:]),
        ("metrics/events?after=0", str(listed[1]["id"]), listed[2:]),
        ("metrics/events", "nonsense", listed),
        ("metrics/events?trial=good1&type=FINAL", "", [one for one in listed if one["trialId"] == "good1"][-1:]),
    ):
        found = []
        async with following(world, f"seeded/{what}", last) as stream:
            while events := await stream.events():
                found += events
        assert found == [("metric", one) for one in expected], what


# The list


async def test_list_changes_are_sent(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    async with following(world, "events") as stream:
        ((kind, first),) = await stream.events()
        assert kind == "experiment" and (first["id"], first["best"]["trialId"]) == ("seeded", "good1")
        id_ = await create(api, world)
        await stream.until("experiment", id=id_, counts={})  # before it is open they are not known
        await api.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 1}})
        await stream.until("experiment", id=id_, counts={"RUNNING": 1})
        await api.post(f"/api/v1/experiments/{id_}/stop")
        stopped = await stream.until("experiment", id=id_, status="STOPPED")
        assert stopped["counts"] == {"USER_CANCELED": 1}, "which the index knows"
        await api.delete(f"/api/v1/experiments/{id_}")
        assert await stream.until("removed") == {"id": id_}
        world.stopping.set()


async def test_head_of_a_stream_ends_at_once(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    async with asyncio.timeout(1):
        head = await api.head(f"/api/v1/experiments/{id_}/events")
    assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


@pytest.mark.parametrize("end", ["daemon", "client"])
async def test_stream_ends_with_the_daemon_or_the_client(api: httpx.AsyncClient, world: World, end: str) -> None:
    id_ = await create(api, world)
    async with following(world, id_) as stream:
        await stream.state()
        (world.stopping if end == "daemon" else stream.gone).set()
        assert await stream.part() == ""


async def test_silence_is_broken_by_comments(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT_S", 0.01)
    id_ = await create(api, world)
    async with following(world, id_) as stream:
        await stream.state()
        while await stream.part() != ":\n\n":
            pass
        stream.gone.set()


async def test_a_stream_that_has_nothing_to_tell_begins_with_a_comment(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    async with following(world, f"{id_}/metrics/events?after=999") as stream:
        assert await stream.part() == ":\n\n"
        stream.gone.set()
