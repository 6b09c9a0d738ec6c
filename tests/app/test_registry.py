"""NNI's list of experiments follows our index."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nni_manager.app import nni_list
from nni_manager.app.listening.listeners import Listener
from nni_manager.app.nni_list import NniList
from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.folder import Folder
from nni_manager.store.index.index import Entry

pytestmark = pytest.mark.unit

ENTRY = Entry(
    id="abc",
    folder=Folder(Path("/data/abc")),
    name="digits",
    platform="local",
    status=ExperimentStatus.RUNNING,
    created_ms=5,
    ended_ms=None,
    is_open=True,
    endpoint=Endpoint(port=8888, prefix="my/pre"),
    launched_ms=7,
)
THEIRS = {"id": "theirs", "status": "RUNNING", "pid": 1, "port": 8090}


class Ours:
    """An index and listeners, as lists."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index: list[Entry] = [ENTRY]
        self.listeners: list[Listener] = [Listener(kind="control", address="/run/socket")]
        self.data = path.parent / "data"
        self.pids: dict[str, int] = {}
        self.opening: set[str] = set()
        self.registry = NniList(
            path=path,
            entries=self.entries,
            listeners=lambda: self.listeners,
            url=self.url,
            pid=self.pid,
            is_open=lambda id: id not in self.opening,
            data_directory=self.data,
        )

    async def entries(self) -> list[Entry]:
        return self.index

    async def pid(self, id: str) -> int | None:
        return self.pids.get(id)

    def url(self, endpoint: Endpoint) -> str:
        return f"http://127.0.0.1:{endpoint.port}{endpoint.path}"

    def file(self) -> dict[str, Any]:
        return json.loads(self.path.read_text())  # type: ignore[no-any-return]

    async def until(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        async with asyncio.timeout(20):
            while not (self.path.exists() and holds(self.file())):  # noqa: ASYNC110 (no event for files)
                await asyncio.sleep(0.01)
        return self.file()

    async def at_rest(self) -> None:
        """Waits until all changes are written and checked."""
        await asyncio.sleep(2 * (nni_list._GATHER_S + nni_list._LOOK_S) + 0.2)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.registry.begin()
        task = asyncio.create_task(self.registry.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})


@pytest.fixture
def ours(tmp_path: Path) -> Ours:
    path = tmp_path / ".experiment"
    path.write_text(json.dumps({"theirs": THEIRS}))
    return Ours(path)


async def test_entry_deleted_by_a_killed_daemon_is_removed(ours: Ours) -> None:
    """Only entries below our data directory without a folder are removed."""
    (ours.data / "kept").mkdir(parents=True)
    entries = {
        "deleted": {"id": "deleted", "status": "STOPPED", "logDir": str(ours.data)},
        "kept": {"id": "kept", "status": "STOPPED", "logDir": str(ours.data)},
        "abc": {"id": "abc", "status": "STOPPED", "logDir": str(ours.data)},
        "away": {"id": "away", "status": "STOPPED", "logDir": "/elsewhere"},
        "theirs": THEIRS,
    }
    ours.path.write_text(json.dumps(entries))
    async with ours.running():
        found = await ours.until(lambda file: "deleted" not in file)
    assert found.keys() == {"kept", "abc", "away", "theirs"}


async def test_entry_deleted_before_the_first_write_is_removed(ours: Ours) -> None:
    """Right after the daemon's start an experiment may be deleted, wherever its folder is."""
    ours.path.write_text(json.dumps({"abc": {"id": "abc", "status": "STOPPED", "logDir": "/data"}}))
    async with ours.running():
        ours.index.clear()
        assert await ours.until(lambda file: "abc" not in file) == {}


async def test_a_folder_that_goes_after_its_entry_is_looked_for_again(ours: Ours) -> None:
    (ours.data / "slow").mkdir(parents=True)
    ours.path.write_text(json.dumps({"slow": {"id": "slow", "status": "STOPPED", "logDir": str(ours.data)}}))
    async with ours.running():
        assert "slow" in await ours.until(lambda file: "abc" in file)
        (ours.data / "slow").rmdir()
        ours.registry.note()
        await ours.until(lambda file: "slow" not in file)


async def test_list_is_checked_without_changes_of_ours(ours: Ours) -> None:
    ours.index.clear()
    ours.path.write_text(json.dumps({"deleted": {"id": "deleted", "logDir": str(ours.data)}}))
    async with ours.running():
        assert await ours.until(lambda file: "deleted" not in file) == {}


async def test_an_entry_as_nni_s_tools_read_it(ours: Ours) -> None:
    ours.pids["abc"] = 4711
    async with ours.running():
        found = await ours.until(lambda file: "abc" in file)
    assert found == {
        "theirs": THEIRS,
        "abc": {
            "id": "abc",
            "port": 8888,
            "startTime": 7,
            "endTime": "N/A",
            "status": "RUNNING",
            "platform": "local",
            "experimentName": "digits",
            "tag": [],
            "pid": 4711,
            "logDir": "/data",
            "prefixUrl": "my/pre",
            "webuiUrl": ["http://127.0.0.1:8888/my/pre"],
        },
    }


async def test_entry_always_has_a_process(ours: Ours) -> None:
    """NNI's tools consider an experiment without a process stopped."""
    async with ours.running():
        assert (await ours.until(lambda file: "abc" in file))["abc"]["pid"] == os.getpid()


async def test_unopened_experiment_has_no_process(ours: Ours) -> None:
    """NNI's `stop` ends the process that is listed, which must not be the daemon's."""
    ours.opening.add("abc")
    async with ours.running():
        assert "pid" not in (await ours.until(lambda file: "abc" in file))["abc"]
        ours.opening.clear()
        ours.pids["abc"] = os.getppid()
        ours.registry.note()
        assert (await ours.until(lambda file: "pid" in file["abc"]))["abc"]["pid"] == os.getppid()


async def test_own_ending_process_is_not_another_managers(ours: Ours) -> None:
    ours.pids["abc"] = os.getppid()
    ours.index = [replace(ENTRY, launched_ms=int(time.time() * 1000))]
    async with ours.running():
        await ours.until(lambda file: "abc" in file)
        ours.index = [replace(ENTRY, status=ExperimentStatus.STOPPED, is_open=False, endpoint=None)]
        ours.registry.note()
        assert "pid" not in (await ours.until(lambda file: file["abc"]["status"] == "STOPPED"))["abc"]


async def test_entry_without_view_names_the_service(ours: Ours) -> None:
    ours.index = [replace(ENTRY, endpoint=None, launched_ms=None, name=None)]
    ours.listeners.append(Listener(kind="service", address="http://127.0.0.1:8080"))
    async with ours.running():
        entry = (await ours.until(lambda file: "abc" in file))["abc"]
    assert (entry["port"], entry["prefixUrl"]) == (8080, "experiments/abc")
    assert entry["webuiUrl"] == ["http://127.0.0.1:8080/experiments/abc"]
    assert (entry["startTime"], entry["experimentName"]) == (5, None)


async def test_entry_without_any_port(ours: Ours) -> None:
    ours.index = [replace(ENTRY, endpoint=None)]
    async with ours.running():
        entry = (await ours.until(lambda file: "abc" in file))["abc"]
    assert (entry["port"], entry["prefixUrl"], entry["webuiUrl"]) == (None, None, [])


async def test_list_follows_every_change(ours: Ours) -> None:
    async with ours.running():
        await ours.until(lambda file: "abc" in file)
        ours.index = [replace(ENTRY, status=ExperimentStatus.DONE, ended_ms=9)]
        ours.registry.note()
        await ours.until(lambda file: (file["abc"]["status"], file["abc"]["endTime"]) == ("DONE", 9))
        ours.index = [replace(ENTRY, status=ExperimentStatus.STOPPED, ended_ms=9, is_open=False, endpoint=None)]
        ours.registry.note()
        entry = (await ours.until(lambda file: file["abc"]["status"] == "STOPPED"))["abc"]
        assert "port" not in entry and "pid" not in entry and entry["webuiUrl"] == []
        ours.index = []
        ours.registry.note()
        assert await ours.until(lambda file: "abc" not in file) == {"theirs": THEIRS}


async def test_entries_of_a_killed_daemon_are_corrected(ours: Ours) -> None:
    left = {"id": "abc", "status": "RUNNING", "pid": 1, "port": 1, "logDir": "/data", "tag": ["kept"]}
    ours.path.write_text(json.dumps({"abc": left, "theirs": THEIRS}))
    ours.index = [replace(ENTRY, status=ExperimentStatus.STOPPED, ended_ms=9, is_open=False, endpoint=None)]
    async with ours.running():
        found = await ours.until(lambda file: file["abc"]["status"] == "STOPPED")
    assert list(found) == ["abc", "theirs"] and "pid" not in found["abc"] and found["abc"]["tag"] == ["kept"]


async def test_a_copy_at_work_elsewhere_is_not_ours(ours: Ours) -> None:
    elsewhere = {"id": "abc", "status": "RUNNING", "pid": 1, "port": 1, "logDir": "/other"}
    ours.path.write_text(json.dumps({"abc": elsewhere}))
    stopped = replace(ENTRY, status=ExperimentStatus.STOPPED, is_open=False, endpoint=None)
    ours.index = [stopped, replace(ENTRY, id="def")]
    async with ours.running():
        found = await ours.until(lambda file: "def" in file)
    assert found["abc"] == elsewhere


@pytest.mark.parametrize(
    ("pid", "launched_ms", "kept"),
    [(os.getppid(), int(time.time() * 1000), True), (os.getppid(), 5, False), (2**22 + 1, 5, False), (None, 5, False)],
    ids=["runs", "launched before it began", "is gone", "none"],
)
async def test_entry_running_under_nni_is_kept(ours: Ours, pid: int | None, launched_ms: int, kept: bool) -> None:
    """Its folder is in our data directory and stopped in our index. The process may be gone, its id another's."""
    running = {"id": "abc", "status": "RUNNING", "pid": pid, "port": 1, "logDir": "/data", "startTime": launched_ms}
    ours.path.write_text(json.dumps({"abc": running}))
    ours.index = [
        replace(ENTRY, status=ExperimentStatus.STOPPED, is_open=False, endpoint=None),
        replace(ENTRY, id="def"),
    ]
    async with ours.running():
        found = await ours.until(lambda file: "def" in file)
    assert (found["abc"] == running, found["abc"]["status"]) == (kept, "RUNNING" if kept else "STOPPED")


@pytest.mark.parametrize("left", [None, "{}", '{"abc": {"id": "abc", "status": "STOPPED"}}'])
async def test_foreign_removal_or_overwrite_is_corrected(
    ours: Ours, left: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nni_list, "_LOOK_S", 0.02)
    async with ours.running():
        entry = (await ours.until(lambda file: "abc" in file))["abc"]
        await ours.at_rest()
        ours.path.unlink() if left is None else ours.path.write_text(left)
        assert await ours.until(lambda file: file.get("abc") == entry) == {"abc": entry}


async def test_one_change_corrects_other_entries_too(ours: Ours) -> None:
    """A concurrent writer may have overwritten our entries."""
    async with ours.running():
        await ours.until(lambda file: "abc" in file)
        ours.path.write_text("{}")
        ours.index = [*ours.index, replace(ENTRY, id="def")]
        ours.registry.note()
        assert (await ours.until(lambda file: "def" in file)).keys() == {"abc", "def"}


async def test_up_to_date_list_is_not_written(ours: Ours, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other managers' entries, and users' tags, stay: else two daemons would trigger each other for ever."""
    monkeypatch.setattr(nni_list, "_LOOK_S", 0.02)
    async with ours.running():
        found = await ours.until(lambda file: "abc" in file)
        await ours.at_rest()
        ours.path.write_text(json.dumps({**found, "abc": {**found["abc"], "tag": ["mine"]}, "theirs": {"status": "X"}}))
        written = os.stat(ours.path)
        await ours.at_rest()
        ours.registry.note()
        await ours.at_rest()
        assert (os.stat(ours.path).st_ino, os.stat(ours.path).st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


async def test_two_managers_do_not_overwrite_each_other(ours: Ours) -> None:
    elsewhere = {"id": "abc", "status": "RUNNING", "pid": os.getppid(), "port": 1, "logDir": "/other"}
    ours.path.write_text(json.dumps({"abc": elsewhere}))
    ours.index = [ENTRY, replace(ENTRY, id="def")]
    async with ours.running():
        assert (await ours.until(lambda file: "def" in file))["abc"] == elsewhere


async def test_entry_deleted_by_nni_does_not_come_back(ours: Ours, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nni_list, "_LOOK_S", 0.02)
    folder = Folder(ours.data / "abc")
    folder.path.mkdir(parents=True)
    ours.index = [replace(ENTRY, folder=folder, status=ExperimentStatus.STOPPED, is_open=False, endpoint=None)]
    async with ours.running():
        await ours.until(lambda file: "abc" in file)
        ours.path.write_text("{}")
        await ours.until(lambda file: "abc" in file)
        await ours.at_rest()
        folder.path.rmdir()
        ours.path.write_text("{}")
        await ours.at_rest()
        assert ours.file() == {}


async def test_a_busy_file_is_waited_for(ours: Ours) -> None:
    lock = ours.path.with_name(".experiment.lock.1")
    lock.touch()
    async with ours.running():
        for _ in range(20):
            os.utime(lock)
            await asyncio.sleep(0.01)
        assert ours.file() == {"theirs": THEIRS}
        lock.unlink()
        await ours.until(lambda file: "abc" in file)


async def test_last_change_is_written_at_the_end(ours: Ours) -> None:
    lock = ours.path.with_name(".experiment.lock.1")
    lock.touch()
    async with ours.running():
        await asyncio.sleep(0.02)
        lock.unlink()
    assert "abc" in ours.file()


async def test_a_folder_that_cannot_be_written_is_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    ours = Ours(tmp_path / "file" / ".experiment")
    async with ours.running(), asyncio.timeout(20):
        while not caplog.messages:  # noqa: ASYNC110 (no event for logs)
            await asyncio.sleep(0.01)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("NNI's list of experiments cannot be written: ")
