"""`check-status`: cached while nothing changes, and never out of date."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import httpx
import pytest

from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus, Hold, HoldCode
from nni_manager.store.connection import connect
from nni_manager.store.database import Database
from nni_manager.store.experiment import experiments
from nni_manager.store.index import index
from tests.api.world import World
from tests.scheduler.fake_endpoints import FakeEndpoints

pytestmark = pytest.mark.unit


async def created(api: httpx.AsyncClient, world: World) -> str:
    return str((await api.post("/api/v1/experiments", json=world.config())).json()["id"])


def path(id_: str) -> str:
    return f"/experiments/{id_}/api/v1/nni/check-status"


async def until_quiet(api: httpx.AsyncClient, world: World, id_: str) -> httpx.Response:
    """An answer after the first trials were started, when nothing else changes."""
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    count = -1
    while count != experiment.changes.count:
        count = experiment.changes.count
        answer = await api.get(path(id_))
        await asyncio.sleep(0.1)
    return answer


async def test_status_is_answered_from_memory(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await created(api, world)
    first = await until_quiet(api, world, id_)
    assert first.json() == {"status": "RUNNING", "errors": []}

    async def unused(*_: object) -> None:
        raise AssertionError("the store was asked")

    monkeypatch.setattr(Database, "read", unused)
    again = await api.get(path(id_))
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["content-type"] == first.headers["content-type"] == "application/json; charset=utf-8"


async def test_a_change_is_seen_at_once(api: httpx.AsyncClient, world: World) -> None:
    id_ = await created(api, world)
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    await api.get(path(id_))
    hold = Hold(code=HoldCode.TUNER_RAISED, sentence="the tuner raised ValueError", details="Traceback")
    with experiment.changes.watch() as news:
        experiment.loop.inbox.put_on_hold(hold)
        await news.wait()
    assert (await api.get(path(id_))).json() == {"status": "ERROR", "errors": ["the tuner raised ValueError"]}
    await world.commands.resume(id_)
    assert (await api.get(path(id_))).json() == {"status": "RUNNING", "errors": []}
    await world.commands.stop(id_)
    assert (await api.get(path(id_))).json()["status"] == "STOPPED"


async def test_temporary_hold_is_not_an_error(api: httpx.AsyncClient, world: World) -> None:
    id_ = await created(api, world)
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    hold = Hold(code=HoldCode.TUNER_SILENT, sentence="the tuner is silent")
    await experiment.database.write(lambda c: experiments.set_hold(c, hold, 5))
    experiment.changes.note()
    assert (await api.get(path(id_))).json() == {"status": "RUNNING", "errors": ["the tuner is silent"]}


async def test_done_ends_when_a_limit_is_raised(api: httpx.AsyncClient, world: World) -> None:
    id_ = await created(api, world)
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    done = ExperimentStatus.DONE
    await experiment.database.write(lambda c: c.execute("UPDATE experiment SET next_sequence_id = 10") and None)
    await experiment.database.write(lambda c: experiments.set_status(c, done, 5))
    experiment.changes.note()
    assert (await api.get(path(id_))).json()["status"] == "DONE"
    body = {"params": {"maxTrialNumber": 20}}
    assert (
        await api.put(path(id_).replace("check-status", "experiment?update_type=MAX_TRIAL_NUM"), json=body)
    ).is_success
    assert (await api.get(path(id_))).json()["status"] != "DONE"


async def test_turn_with_old_limit_respects_new_limit(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was queued behind the change, and found that all ten trials were made."""
    id_ = await created(api, world)
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    apply = experiment.apply

    def after_the_turn(spec: ExperimentSpec) -> None:
        with closing(connect(experiment.database.path)) as connection:
            experiments.set_status(connection, ExperimentStatus.DONE, 5)
        apply(spec)

    await experiment.database.write(lambda c: c.execute("UPDATE experiment SET next_sequence_id = 10") and None)
    monkeypatch.setattr(experiment, "apply", after_the_turn)
    await world.commands.change(id_, {"maxTrialNumber": 20})
    assert (await api.get(path(id_))).json()["status"] == "RUNNING"


async def test_failed_view_is_reported_without_other_change(api: httpx.AsyncClient, world: World) -> None:
    id_ = await created(api, world)
    await api.get(path(id_))
    endpoints = world.supervisor.shared.endpoints
    assert isinstance(endpoints, FakeEndpoints)
    problems = endpoints.problems
    problems[id_] = "its endpoint cannot be reopened: port 8080 is in use"
    assert (await api.get(path(id_))).json()["errors"] == [problems[id_]]
    del problems[id_]
    assert (await api.get(path(id_))).json()["errors"] == []


@pytest.mark.parametrize("status", [ExperimentStatus.STOPPED, ExperimentStatus.VIEWED, ExperimentStatus.ERROR])
async def test_status_of_closed_experiment(api: httpx.AsyncClient, world: World, status: ExperimentStatus) -> None:
    await world.add("seeded", status=status)
    if status is ExperimentStatus.ERROR:
        world.supervisor.not_opened["seeded"] = Hold(
            code=HoldCode.STORE_UNAVAILABLE, sentence="experiment seeded cannot be opened: the disk is full"
        )
    found = (await api.get(path("seeded"))).json()
    assert found["status"] == status and list(found) == ["status", "errors"]
    assert found["errors"] == ([] if status.is_closed else ["experiment seeded cannot be opened: the disk is full"])


async def test_opening_experiment_is_not_ready(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded", status=ExperimentStatus.RUNNING)
    answer = await api.get(path("seeded"))
    assert (answer.status_code, answer.text) == (200, "INITIALIZING")
    assert answer.headers["content-type"].startswith("text/html")


async def test_a_folder_that_cannot_be_read_is_a_sentence(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    folder.database.write_bytes(b"no database" * 1000)
    answer = await api.get(path("seeded"))
    assert "cannot be read" in answer.json()["error"]


async def test_the_index_is_asked_only_for_closed_ones(api: httpx.AsyncClient, world: World) -> None:
    """An outdated index entry does not affect the answer of an open experiment."""
    id_ = await created(api, world)

    def lag(connection: sqlite3.Connection) -> None:
        index.set_status(connection, id_, ExperimentStatus.STOPPED, 1, is_open=False)

    await world.supervisor.index.write(lag)
    assert (await api.get(path(id_))).json()["status"] == "RUNNING"
