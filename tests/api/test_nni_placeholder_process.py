"""The process that NNI's client waits for and NNI's `nnictl stop` ends: it lives while its experiment is open."""

from __future__ import annotations

import asyncio
import os
import signal

import httpx
import psutil
import pytest

from nni_manager.api.nni import placeholder_process
from nni_manager.domain.experiment import ExperimentStatus
from tests.api.world import World

pytestmark = pytest.mark.unit


async def created(api: httpx.AsyncClient, world: World) -> str:
    return str((await api.post("/api/v1/experiments", json=world.config())).json()["id"])


async def pids(api: httpx.AsyncClient, id_: str) -> dict[str, int | None]:
    answer = await api.get(f"/experiments/{id_}/api/v1/nni/experiments-info")
    return {one["id"]: one.get("pid") for one in answer.json()}


async def gone(world: World, pid: int) -> None:
    """Waits until the process is gone and its watch has ended."""
    made = world.placeholders
    async with asyncio.timeout(20):
        while psutil.pid_exists(pid) or len(made._watches) > len(made._processes):  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.01)


async def test_process_ends_with_its_experiment(api: httpx.AsyncClient, world: World) -> None:
    id_, other = await created(api, world), await created(api, world)
    found = await pids(api, id_)
    pid = found[id_]
    assert pid is not None and psutil.Process(pid).is_running() and pid != os.getpid()
    assert found[other] is None
    assert await pids(api, id_) == found
    metadata = (await api.get(f"/experiments/{id_}/api/v1/nni/experiment-metadata")).json()
    assert metadata["pid"] == pid
    await world.commands.stop(id_)
    await gone(world, pid)
    assert (await pids(api, id_))[id_] is None


async def test_terminating_the_process_stops_the_experiment(api: httpx.AsyncClient, world: World) -> None:
    id_ = await created(api, world)
    pid = (await pids(api, id_))[id_]
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    await world.supervisor.closed(id_)
    await gone(world, pid)


async def test_process_has_none_of_the_daemons_variables(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNI_MANAGER_TOKEN", "a token of the bees")
    pid = (await pids(api, await created(api, world))).popitem()[1]
    assert pid is not None and psutil.Process(pid).environ().keys() <= {"PATH"}


async def test_creation_does_not_wait_for_the_process(api: httpx.AsyncClient, world: World) -> None:
    before = psutil.Process().children()
    await created(api, world)
    assert psutil.Process().children() == before


async def test_viewed_experiment_has_a_process(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seen")
    await world.commands.view("seen")
    pid = (await pids(api, "seen"))["seen"]
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    async with asyncio.timeout(20):
        while (await world.commands.entry("seen")).status is not ExperimentStatus.STOPPED:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await pids(api, "seen"))["seen"] is None
    await world.commands.view("seen")
    again = (await pids(api, "seen"))["seen"]
    assert again is not None
    await world.commands.stop("seen")
    await gone(world, again)


async def test_signal_to_all_processes_stops_no_experiment(api: httpx.AsyncClient, world: World) -> None:
    id_ = await created(api, world)
    pid = (await pids(api, id_))[id_]
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    await gone(world, pid)
    world.stopping.set()
    await asyncio.sleep(placeholder_process._DAEMON_TOO_S * 2)
    assert world.commands.at_work(id_) is not None
    assert (await world.commands.entry(id_)).status is ExperimentStatus.RUNNING


async def test_lost_process_is_reported(api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placeholder_process, "_AGAIN_S", 0.01)
    lost = asyncio.Event()
    world.placeholders.on_loss = lost.set
    id_ = await created(api, world)
    pid = await world.placeholders.pid(id_)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        await lost.wait()


async def test_daemon_end_stops_no_experiment(api: httpx.AsyncClient, world: World) -> None:
    """A service manager signals all processes of a service."""
    id_ = await created(api, world)
    pid = (await pids(api, id_))[id_]
    assert pid is not None
    world.stopping.set()
    os.kill(pid, signal.SIGTERM)
    await gone(world, pid)
    async with asyncio.timeout(20):
        while (await pids(api, id_))[id_] in (pid, None):  # noqa: ASYNC110 (until the loop knows of its end)
            await asyncio.sleep(0.01)
    entry = await world.commands.entry(id_)
    assert world.commands.at_work(id_) is not None and entry.status is ExperimentStatus.RUNNING


async def test_killed_process_is_replaced(api: httpx.AsyncClient, world: World) -> None:
    id_ = await created(api, world)
    pid = (await pids(api, id_))[id_]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await gone(world, pid)
    async with asyncio.timeout(20):
        while (again := (await pids(api, id_))[id_]) == pid:  # noqa: ASYNC110 (until the loop knows of its end)
            await asyncio.sleep(0.01)
    assert again is not None and psutil.pid_exists(again) and world.commands.at_work(id_) is not None
    await world.commands.stop(id_)
    await gone(world, again)


async def test_no_pid_when_no_process_can_be_started(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placeholder_process, "_COMMAND", "/nowhere/cat")
    id_ = await created(api, world)
    assert await pids(api, id_) == {id_: None}


async def test_closing_ends_every_process_and_no_experiment(api: httpx.AsyncClient, world: World) -> None:
    id_ = await created(api, world)
    pid = await world.placeholders.pid(id_)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # it sees no end of its pipe
    await world.placeholders.close()
    assert not psutil.pid_exists(pid) and not world.placeholders._watches
    assert world.commands.at_work(id_) is not None
