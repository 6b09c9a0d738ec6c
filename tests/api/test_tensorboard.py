"""TensorBoards: one process for each request, on 127.0.0.1, which nothing leaves behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from nni_manager.scheduler.tensorboard import boards as module
from nni_manager.scheduler.tensorboard.boards import TensorBoards
from nni_manager.store import private
from nni_manager.store.folder import Folder
from nni_manager.store.private import Kept
from tests.api.tensorboard_program import BROKEN, TAKEN_AT_FIRST, install
from tests.api.world import World

pytestmark = pytest.mark.unit

API = "/api/v1/experiments/seeded/tensorboards"
NNI = "/experiments/seeded/api/v1/nni"


@pytest.fixture
async def boards(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TensorBoards]:
    """The TensorBoards of a manager whose experiment has two trials that wrote something."""
    install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    folder = await world.add("seeded")
    for trial in ("good1", "nannn"):
        place = folder.trials / trial / "tensorboard"
        place.mkdir(parents=True)
        (place / f"events.{trial}").write_bytes(b"")
    yield world.commands.tensorboards
    await world.commands.tensorboards.close()


async def shown(url: str) -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(url, timeout=10)).text


def family(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


async def gone(processes: list[psutil.Process]) -> None:
    """Raises AssertionError for one that stays."""
    _, left = await asyncio.to_thread(psutil.wait_procs, processes, 10)
    assert left == []


async def start(api: httpx.AsyncClient, *trials: str) -> dict[str, Any]:
    answer = await api.post(API, json={"trials": trials or ("good1",)})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_logs_of_the_trials_are_shown(api: httpx.AsyncClient, boards: TensorBoards) -> None:
    found = await start(api, "good1", "nannn")
    assert found["status"] == "RUNNING" and found["url"].startswith("http://127.0.0.1:")
    text = await shown(found["url"])
    assert "good1/events.good1" in text and "nannn/events.nannn" in text
    assert (await api.get(API)).json()["tensorboards"] == [found]


async def test_each_has_a_port_and_a_process(api: httpx.AsyncClient, boards: TensorBoards) -> None:
    first, second = await start(api, "good1"), await start(api, "nannn")
    assert first["port"] != second["port"] and first["pid"] != second["pid"]
    assert "nannn" not in await shown(first["url"])
    taken = await api.post(API, json={"trials": ["good1"], "port": first["port"]})
    assert taken.status_code == 409 and "in use" in taken.json()["error"]


async def test_stop_ends_all_that_it_started(api: httpx.AsyncClient, boards: TensorBoards, world: World) -> None:
    found = await start(api)
    processes = family(found["pid"])
    assert len(processes) > 2
    assert (await api.delete(f"{API}/{found['id']}")).status_code == 204
    await gone(processes)
    assert (await api.get(API)).json() == {"tensorboards": []}
    assert (await api.delete(f"{API}/{found['id']}")).status_code == 404
    assert list((world.data / ".tensorboards").iterdir()) == []


async def test_end_of_the_daemon_ends_them(api: httpx.AsyncClient, boards: TensorBoards) -> None:
    processes = family((await start(api))["pid"])
    await boards.close()
    await gone(processes)


async def test_kill_of_the_daemon_ends_them(api: httpx.AsyncClient, boards: TensorBoards) -> None:
    """What the kernel does for a killed daemon: its end of the pipe closes."""
    found = await start(api)
    processes = family(found["pid"])
    process = boards.get("seeded", found["id"])._process
    assert process is not None and process.stdin is not None
    process.stdin.close()
    await gone(processes)


async def test_stop_of_the_experiment_ends_them(api: httpx.AsyncClient, boards: TensorBoards, world: World) -> None:
    assert (await api.post("/api/v1/experiments/view", json={"id": "seeded"})).status_code == 200
    processes = family((await start(api))["pid"])
    assert (await api.post("/api/v1/experiments/seeded/stop")).status_code == 200
    await gone(processes)


async def test_tensorboard_without_browser_ends(
    api: httpx.AsyncClient, boards: TensorBoards, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, idle = await start(api, "good1"), await start(api, "nannn")
    monkeypatch.setattr(module, "connected_ports", lambda: {kept["port"]})
    boards._used_s[idle["id"]] -= 3601
    boards._used_s[kept["id"]] -= 3601
    await boards.look()
    assert [one["id"] for one in (await api.get(API)).json()["tensorboards"]] == [kept["id"]]


async def test_stop_while_one_starts_leaves_nothing(
    api: httpx.AsyncClient, boards: TensorBoards, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its experiment closes while the process is being started."""
    spawn, spawned = asyncio.create_subprocess_exec, []

    async def spawn_late(*words: Any, **options: Any) -> asyncio.subprocess.Process:
        await boards.stop_all("seeded")
        spawned.append(await spawn(*words, **options))
        return spawned[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn_late)
    answer = await api.post(API, json={"trials": ["good1"]})
    assert answer.status_code == 409 and "stopped while it started" in answer.json()["error"]
    assert [process.returncode is None for process in spawned] == [False]
    assert list((world.data / ".tensorboards").iterdir()) == []


async def test_look_leaves_one_that_starts(
    api: httpx.AsyncClient, boards: TensorBoards, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = asyncio.create_subprocess_exec

    async def look_first(*words: Any, **options: Any) -> asyncio.subprocess.Process:
        await boards.look()
        return await spawn(*words, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", look_first)
    found = await start(api)
    assert (await api.get(API)).json()["tensorboards"] == [found]


async def test_look_goes_on_where_another_is_stopped_meanwhile(
    api: httpx.AsyncClient, boards: TensorBoards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "connected_ports", set)
    first, second = await start(api, "good1"), await start(api, "nannn")
    boards._used_s[first["id"]] -= 3601
    close, other = boards.get("seeded", first["id"]).close, boards.get("seeded", second["id"])

    async def close_both() -> None:
        await boards.stop(other)
        await close()

    boards.get("seeded", first["id"]).close = close_both  # type: ignore[method-assign]
    await boards.look()
    assert (await api.get(API)).json()["tensorboards"] == []


async def test_connection_is_seen(api: httpx.AsyncClient, boards: TensorBoards) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert port not in module.connected_ports()
    found = (await api.post(API, json={"trials": ["good1"], "port": port})).json()
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.get(found["url"])
        assert found["port"] in module.connected_ports()


async def test_port_that_was_taken_meanwhile_costs_nothing(
    api: httpx.AsyncClient, boards: TensorBoards, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port, free = other.getsockname()[1], module.free_port
        monkeypatch.setattr(module, "free_port", lambda taken, wanted: free(taken, wanted) if port in taken else port)
        assert (await start(api))["port"] != port


async def test_port_of_a_program_that_has_ended_since_costs_nothing(
    api: httpx.AsyncClient, boards: TensorBoards, tmp_path: Path
) -> None:
    install(tmp_path / "bin").rename(tmp_path / "bin" / "real")
    install(tmp_path / "bin", TAKEN_AT_FIRST)
    assert (await start(api))["status"] == "RUNNING"
    assert (tmp_path / "bin" / "taken").exists()


async def test_missing_program_is_reported(
    api: httpx.AsyncClient, boards: TensorBoards, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(boards, "_environment", _no_environment)
    answer = await api.post(API, json={"trials": ["good1"]})
    assert answer.status_code == 400 and "pip install tensorboard" in answer.json()["error"]


async def _no_environment(_: str) -> dict[str, str]:
    return {"PATH": "/nowhere"}


def _foreign_program(folder: Folder, place: Path) -> Path:
    """A program that an experiment's folder names by its PATH. Returns the file that it leaves where it ran."""
    ran = place / "ran"
    install(place / "theirs", f"#!/bin/sh\ntouch {ran}\nexit 1\n")
    private.replace(folder.private, Kept(environment={"PATH": f"{place / 'theirs'}:{os.environ['PATH']}"}))
    return ran


async def test_experiment_that_is_viewed_names_no_program(
    api: httpx.AsyncClient, boards: TensorBoards, world: World, tmp_path: Path
) -> None:
    """Its folder may be another user's, and what its PATH names as well."""
    ran = _foreign_program(await world.commands.folder("seeded"), tmp_path)
    assert (await api.post("/api/v1/experiments/view", json={"id": "seeded"})).status_code == 200
    assert (await start(api))["status"] == "RUNNING"
    assert not ran.exists()


async def test_folder_of_another_user_names_no_program(
    api: httpx.AsyncClient, boards: TensorBoards, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = _foreign_program(await world.commands.folder("seeded"), tmp_path)
    monkeypatch.setattr(private, "is_ours", lambda folder, owner: owner != os.geteuid())
    assert (await start(api))["status"] == "RUNNING"
    assert not ran.exists()


async def test_last_line_of_broken_program_is_reported(
    api: httpx.AsyncClient, boards: TensorBoards, tmp_path: Path
) -> None:
    install(tmp_path / "bin", BROKEN)
    answer = await api.post(API, json={"trials": ["good1"]})
    assert answer.status_code == 400 and "no module named six" in answer.json()["error"]
    assert (await api.get(API)).json() == {"tensorboards": []}


@pytest.mark.parametrize(
    ("body", "status"),
    [({"trials": ["zzzzz"]}, 404), ({"trials": []}, 400), ({"trials": ["../x"]}, 400), ({}, 400)],
)
async def test_other_trials_are_refused(
    api: httpx.AsyncClient, boards: TensorBoards, body: dict[str, Any], status: int
) -> None:
    assert (await api.post(API, json=body)).status_code == status


async def test_files_on_other_machines_are_reported(api: httpx.AsyncClient, boards: TensorBoards, world: World) -> None:
    await world.add("remote", trainingService={"platform": "remote", "machineList": [{"host": "box", "user": "me"}]})
    answer = await api.post("/api/v1/experiments/remote/tensorboards", json={"trials": ["good1"]})
    assert answer.status_code == 400 and "nnictl trial download remote -T good1" in answer.json()["error"]


async def test_nni_starts_lists_and_stops_them(api: httpx.AsyncClient, boards: TensorBoards) -> None:
    answer = await api.post(f"{NNI}/tensorboard", json={"trials": "good1,nannn"})
    task = answer.json()
    assert answer.status_code == 200 and set(task) == {
        *("id", "status", "trialJobIdList", "trialLogDirectoryList", "pid", "port")
    }
    assert task["status"] == "RUNNING" and task["trialJobIdList"] == ["good1", "nannn"]
    assert isinstance(task["port"], str) and "good1" in await shown(f"http://127.0.0.1:{task['port']}/")
    assert (await api.get(f"{NNI}/tensorboard-tasks")).json() == [task]
    assert (await api.get(f"{NNI}/tensorboard/{task['id']}")).json() == task
    assert (await api.put(f"{NNI}/tensorboard/{task['id']}")).json() == task
    assert (await api.delete(f"{NNI}/tensorboard/{task['id']}")).json()["status"] == "STOPPED"
    assert (await api.get(f"{NNI}/tensorboard-tasks")).json() == []
    await start(api)
    assert (await api.delete(f"{NNI}/tensorboard-tasks")).content == b""
    assert (await api.get(API)).json() == {"tensorboards": []}


async def test_real_tensorboard_shows_its_page(
    api: httpx.AsyncClient, boards: TensorBoards, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.which("tensorboard", path=os.environ.get("NNI_TEST_TENSORBOARD", ""))
    if real is None:
        pytest.skip("the package tensorboard is not installed: NNI_TEST_TENSORBOARD names a folder with the program")
    monkeypatch.setattr(module, "_program", lambda _: real)
    found = await start(api)
    assert "<title>TensorBoard</title>" in await shown(found["url"])
