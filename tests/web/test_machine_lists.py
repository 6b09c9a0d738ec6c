"""Draining and adding machines for all open experiments: no change is lost, and a refusal does not stop others."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import httpx
import pytest

from nni_manager.platform_kit.contract import PreflightFinding, Severity
from tests.api.world import World
from tests.web import gpu_service
from tests.web.gpu_service import OnMachines
from tests.web.test_pages import create
from tests.web.test_platforms_page import machine

pytestmark = pytest.mark.unit

ADDED = {"platform": "remote", "host": "hostC", "user": "me", "port": ""}


@pytest.fixture(autouse=True)
def on_machines(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_service.install(monkeypatch)


class Entrance(asyncio.Lock):
    """A lock that reports waiting tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: asyncio.Queue[None] = asyncio.Queue()

    async def acquire(self) -> Literal[True]:
        self.wanted.put_nowait(None)
        return await super().acquire()


def draining(key: str) -> dict[str, str]:
    return {"platform": "remote", "machine": key, "drain": "1"}


async def test_concurrent_changes_are_all_kept(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor, trainingService=gpu_service.section("hostA", "hostB"))
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    experiment.changing = entrance = Entrance()
    asked = [
        ("/platforms/drain", draining(gpu_service.FIRST)),
        ("/platforms/drain", draining(gpu_service.SECOND)),
        ("/platforms/machines", ADDED),
    ]
    async with entrance:
        answers = [asyncio.ensure_future(visitor.post(path, data=fields)) for path, fields in asked]
        for _ in range(1 + len(answers)):  # this one, too
            await entrance.wanted.get()
    assert [answer.status_code for answer in await asyncio.gather(*answers)] == [303, 303, 303]
    assert [await machine(visitor, id_, number, "drain") for number in (0, 1)] == [True, True]
    assert await machine(visitor, id_, 2, "host") == "hostC"


def find_wrong(monkeypatch: pytest.MonkeyPatch, *experiments: str) -> None:
    """The preflight refuses these experiments; by default all."""

    async def preflight(self: Any) -> list[PreflightFinding]:
        if experiments and self.host.experiment_id not in experiments:
            return []
        return [PreflightFinding(severity=Severity.WRONG, subject="hostA: login", sentence="permission denied")]

    monkeypatch.setattr(OnMachines, "preflight", preflight)


async def test_broken_machine_can_be_drained(
    visitor: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await create(world, visitor, trainingService=gpu_service.section("hostA", "hostB"))
    find_wrong(monkeypatch)
    for drain, expected in (("1", True), ("0", False)):
        answer = await visitor.post("/platforms/drain", data={**draining(gpu_service.FIRST), "drain": drain})
        assert answer.status_code == 303, answer.text
        assert await machine(visitor, id_, 0, "drain") is expected
    assert (await visitor.post("/platforms/machines", data=ADDED)).status_code == 400, "a new one is looked at"


async def test_refusal_of_one_experiment_does_not_stop_the_others(
    visitor: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [
        await create(world, visitor, experimentName=name, trainingService=gpu_service.section("hostA"))
        for name in ("one", "two", "three", "four")
    ]
    find_wrong(monkeypatch, ids[1])
    unreadable = world.commands.at_work(ids[2])
    assert unreadable is not None
    unreadable.folder.private.unlink()
    unreadable.folder.private.mkdir()
    answer = await visitor.post("/platforms/machines", data=ADDED)
    assert answer.status_code == 400
    for words in (f"done for one ({ids[0]}), four ({ids[3]})", f"not for two ({ids[1]}): ", "permission denied"):
        assert words in answer.text, answer.text
    assert f"not for three ({ids[2]}): " in answer.text
    assert [await machine(visitor, id_, 1, "host") for id_ in (ids[0], ids[3])] == ["hostC", "hostC"]
