"""Starting the keeper of this machine, and finding one that runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

import nni_manager.machines.keeper.local_process as keeper_process
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.machines.keeper.client import Keeper
from nni_manager.machines.keeper.local_process import LocalKeeper
from nni_manager.platform_kit.lock_holder import lock_holder
from trial_runner import protocol

pytestmark = pytest.mark.acceptance


class Conversation(asyncio.Protocol):
    """One connection to a keeper; asks one thing at a time."""

    def __init__(self) -> None:
        self._decoder = protocol.Decoder()
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._is_over = asyncio.Event()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            self._messages.put_nowait(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over.set()

    async def ask(self, verb: str, **arguments: Any) -> Any:
        self._transport.write(protocol.encode({"verb": verb, "id": 1, **arguments}))
        while (message := await self._messages.get()).get("id") != 1:
            pass
        return message["result"]

    async def close(self) -> None:
        self._transport.close()
        await self._is_over.wait()

    async def is_cut_off(self) -> None:
        """Waits for it."""
        await self._is_over.wait()


class Place:
    """A keeper's folder and socket, and the processes started for them."""

    def __init__(self, directory: Path, runtime: Path) -> None:
        self.directory = directory / "state" / "keeper"
        self.socket = runtime / "keeper.sock"
        self._keepers: list[LocalKeeper] = []
        self._conversations: list[Conversation] = []

    def keeper(self, socket: Path | None = None) -> LocalKeeper:
        """As a new daemon would make it."""
        self._keepers.append(LocalKeeper(self.directory, socket or self.socket))
        return self._keepers[-1]

    async def talk(self, keeper: LocalKeeper) -> Conversation:
        transport = await keeper.connect(Conversation)
        conversation = transport.get_protocol()
        assert isinstance(conversation, Conversation)
        self._conversations.append(conversation)
        return conversation

    async def close(self) -> None:
        """A keeper without jobs ends by itself; asked to, it does so at once."""
        for conversation in self._conversations:
            await conversation.close()
        for process in [keeper._process for keeper in self._keepers if keeper._process is not None]:
            process.terminate()
            await asyncio.to_thread(process.wait)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    with tempfile.TemporaryDirectory(prefix="nni-") as runtime:  # paths of sockets are short
        place = Place(tmp_path, Path(runtime))
        yield place
        await place.close()


async def test_keeper_is_started_if_missing(place: Place) -> None:
    greeting = await (await place.talk(place.keeper())).ask("hello")
    assert greeting["version"] == protocol.VERSION
    assert os.getsid(greeting["pid"]) == greeting["pid"] != os.getsid(0)
    assert place.directory.stat().st_mode & 0o777 == 0o700
    assert place.socket.stat().st_mode & 0o777 == 0o600


async def test_start_that_is_cancelled_writes_into_no_other_file(place: Place, tmp_path: Path) -> None:
    """Files are opened when the process is about to be run; numbers of closed descriptors are free for them."""
    keeper, spawn = place.keeper(), LocalKeeper._spawn
    begun, go_on = threading.Event(), threading.Event()
    passed: list[int] = []
    ours: list[subprocess.Popen[bytes]] = []

    def spawned_late(ready: int) -> subprocess.Popen[bytes]:
        begun.set()
        assert go_on.wait(20)
        passed.append(os.fstat(ready).st_mode)
        ours.append(spawn(keeper, ready))
        return ours[-1]

    keeper._spawn = spawned_late  # type: ignore[method-assign]
    starting = asyncio.create_task(keeper.connect(Conversation))
    assert await asyncio.to_thread(begun.wait, 20)
    starting.cancel()
    for _ in range(5):  # its `finally` runs
        await asyncio.sleep(0)
    with ExitStack() as stack:
        for number in range(8):
            stack.enter_context((tmp_path / f"file{number}").open("wb"))
        go_on.set()
        await asyncio.wait({starting})
    assert [stat.S_ISFIFO(mode) for mode in passed] == [True]
    assert starting.cancelled() and keeper._process is ours[0]


async def test_running_keeper_is_found_by_another_daemon(place: Place) -> None:
    first = await place.talk(place.keeper())
    pid = (await first.ask("hello"))["pid"]
    second = await place.talk(place.keeper())
    assert (await second.ask("hello"))["pid"] == pid
    await first.is_cut_off()


async def test_waiting_for_the_keeper_s_end_reaps_it(place: Place) -> None:
    """Also when it has let go of its lock already."""
    keeper = place.keeper()
    await (await place.talk(keeper)).close()
    process = keeper._process
    assert process is not None
    process.kill()
    await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    await keeper.ended(20)
    assert process.returncode == -signal.SIGKILL


async def test_keeper_with_another_socket_path_is_found(place: Place, tmp_path: Path) -> None:
    """A daemon that comes back has another runtime directory than the one that started the keeper."""
    first = await place.talk(place.keeper())
    pid = (await first.ask("hello"))["pid"]
    elsewhere = place.keeper(place.socket.with_name("other.sock"))
    second = await place.talk(elsewhere)
    assert (await second.ask("hello"))["pid"] == pid


async def test_removed_keeper_socket_is_recreated(place: Place) -> None:
    first = await place.talk(place.keeper())
    pid = (await first.ask("hello"))["pid"]
    place.socket.unlink()
    elsewhere = place.keeper(place.socket.with_name("other.sock"))
    async with asyncio.timeout(20):
        while (second := await _talk_if_there(place, elsewhere)) is None:  # noqa: ASYNC110 (no event tells)
            await asyncio.sleep(0.01)
    assert (await second.ask("hello"))["pid"] == pid


async def _talk_if_there(place: Place, keeper: LocalKeeper) -> Conversation | None:
    try:
        return await place.talk(keeper)
    except (OSError, PlatformUnavailable):
        return None


async def test_keeper_of_deleted_folder_is_not_used(place: Place) -> None:
    """It may still have jobs to end, and listens where the new one is to listen."""
    first = await place.talk(place.keeper())
    pid = (await first.ask("hello"))["pid"]
    os.kill(pid, signal.SIGSTOP)  # it cannot notice by itself
    try:
        shutil.rmtree(place.directory)
        second = await place.talk(place.keeper())
        async with asyncio.timeout(5):
            assert (await second.ask("hello"))["pid"] != pid
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_the_keeper_of_a_moved_folder_of_this_name_is_left_alone(place: Place) -> None:
    first = await place.talk(place.keeper())
    pid = (await first.ask("hello"))["pid"]
    request = {
        "name": "job",
        "owner": "o",
        "environment": dict(os.environ),
        "directory": "/",
        "files": {},
        "grace_s": 0,
    }
    attempt = str(place.socket.with_name("attempt"))
    job = await first.ask("spawn", command="sleep 1000", attempt_directory=attempt, **request)
    moved = place.directory.rename(place.directory.with_name("moved"))
    second = await place.talk(place.keeper())
    assert (await second.ask("hello"))["pid"] != pid
    assert lock_holder(moved / "keeper.lock") == pid
    os.kill(job["pid"], signal.SIGKILL)


async def test_daemon_with_replaced_folder_uses_no_foreign_keeper(place: Place) -> None:
    place.directory.parent.mkdir()
    before = place.keeper()
    conversation = await place.talk(before)
    shutil.rmtree(place.directory.parent)
    place.directory.parent.mkdir()
    after = await place.talk(place.keeper())
    with pytest.raises(PlatformUnavailable, match="replaced while this daemon"):
        await place.talk(before)
    assert (await after.ask("hello"))["version"] == protocol.VERSION
    await conversation.close()


async def test_a_daemon_whose_folder_is_gone_makes_none(place: Place) -> None:
    place.directory.parent.mkdir()
    keeper = place.keeper()
    place.directory.parent.rmdir()
    with pytest.raises(PlatformUnavailable, match="deleted"):
        await place.talk(keeper)
    assert not place.directory.parent.exists()


@pytest.mark.parametrize("recorded", ["/dev/null/keeper.sock", "/" + "x" * 200, "/root/keeper\0.sock"])
async def test_unreachable_old_socket_path_is_replaced(place: Place, recorded: str) -> None:
    """For example in the directory of an earlier user of the data directory."""
    place.directory.mkdir(parents=True)
    (place.directory / "keeper.lock").write_text(f"1\n{recorded}\n")
    assert (await (await place.talk(place.keeper())).ask("hello"))["version"] == protocol.VERSION


async def test_of_two_keepers_started_at_once_one_stays(place: Place) -> None:
    async def connected() -> Conversation:
        while True:
            try:
                return await place.talk(place.keeper())
            except (OSError, PlatformUnavailable):  # the other one was not ready yet
                await asyncio.sleep(0.01)

    conversations = await asyncio.gather(connected(), connected())
    answers = await asyncio.gather(*(_pid_or_none(one) for one in conversations))
    assert len(set(answers) - {None}) == 1


async def _pid_or_none(conversation: Conversation) -> int | None:
    """None where the other connection took its place."""
    asking = asyncio.create_task(conversation.ask("hello"))
    cut_off = asyncio.create_task(conversation.is_cut_off())
    await asyncio.wait({asking, cut_off}, return_when=asyncio.FIRST_COMPLETED)
    cut_off.cancel()
    if asking.done():
        return int(asking.result()["pid"])
    asking.cancel()
    return None


async def test_a_killed_keeper_is_started_again(place: Place) -> None:
    keeper = place.keeper()
    conversation = await place.talk(keeper)
    pid = (await conversation.ask("hello"))["pid"]
    os.kill(pid, signal.SIGKILL)
    await conversation.is_cut_off()
    assert keeper._process is not None
    await asyncio.to_thread(keeper._process.wait)
    again = (await (await place.talk(keeper)).ask("hello"))["pid"]
    assert again != pid


async def test_a_keeper_that_cannot_start_says_why(place: Place) -> None:
    place.directory.parent.mkdir()
    place.directory.mkdir(mode=0o700)
    (place.directory / "jobs").write_text("in the way")
    with pytest.raises(PlatformUnavailable, match=r"the keeper did not start: .*jobs"):
        await place.talk(place.keeper())


async def test_a_folder_that_cannot_be_made_is_an_error_of_the_system(place: Place) -> None:
    place.directory.parent.write_text("in the way")
    with pytest.raises(OSError, match="keeper"):
        await place.talk(place.keeper())


async def test_missing_interpreter_leaves_no_descriptors(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")  # as after an upgrade under a running daemon
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError, match="/no/such/python"):
        await place.talk(place.keeper())
    assert set(os.listdir("/proc/self/fd")) <= before


async def test_a_keeper_that_never_says_that_it_is_ready_is_given_up(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexec sleep 1000\n")
    mute.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(mute))
    monkeypatch.setattr(keeper_process, "_START_TIMEOUT_S", 0.2)
    keeper = place.keeper()
    with pytest.raises(PlatformUnavailable, match="the keeper did not start within"):
        await place.talk(keeper)
    assert keeper._process is not None
    assert await asyncio.to_thread(keeper._process.wait) == -signal.SIGKILL


async def test_fault_of_the_connection_task_is_raised_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(self: Keeper) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(Keeper, "run", fail)
    async with keeper_process.connected(place.keeper()):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (record,) = caplog.records
    assert "trials of this machine are not followed any more" in record.getMessage()
    assert "a fault of ours" in caplog.text
    assert len(caplog.records) == 1, "tasks that are cancelled at the end are as they should be"


_OTHERS_DESCRIPTORS = """
import asyncio, os, threading, uvloop
import nni_manager.machines.keeper.local_process as keeper_process

lost, is_over = [], threading.Event()

def open_and_close():
    while not is_over.is_set():
        descriptor = os.open(os.devnull, os.O_RDONLY)
        try:
            os.fstat(descriptor)
            os.close(descriptor)
        except OSError as error:
            lost.append(error)

async def hear():
    for _ in range(2000):
        read_end, write_end = os.pipe()
        os.write(write_end, b"ready\\n")
        os.close(write_end)
        assert await keeper_process._read(read_end) == b"ready\\n"

thread = threading.Thread(target=open_and_close)
thread.start()
try:
    uvloop.run(hear())
finally:
    is_over.set()
    thread.join()
assert not lost, lost
"""


def test_start_notice_closes_only_its_own_descriptor() -> None:
    """A pipe that the daemon's event loop closes twice takes away what a thread, SQLite's say, opened in between."""
    command = [sys.executable, "-c", _OTHERS_DESCRIPTORS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
