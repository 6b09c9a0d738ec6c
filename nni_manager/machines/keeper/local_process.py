"""The keeper of this machine: reached at its socket, and started if none answers."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from nni_manager.domain.environment import without_settings
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.machines.keeper.client import Keeper
from nni_manager.platform_kit.lock_holder import lock_holder
from nni_manager.platform_kit.tasks import ended, readable
from nni_manager.platform_kit.threads import to_its_end
from trial_runner.wire.descriptors import Descriptor

log = logging.getLogger(__name__)

#: Seconds for a keeper to report that it is ready.
_START_TIMEOUT_S = 20.0


class LocalKeeper:
    """The keeper of this machine. `directory`: its own folder; `socket`: where it listens (at most 107 bytes)."""

    def __init__(self, directory: Path, socket: Path) -> None:
        self._directory = directory
        self._socket = socket
        self._lock = directory / "keeper.lock"
        self._errors = directory / "keeper.err"
        #: Its folder, kept open, so that it stays the same one on every file system; None: not created yet.
        self._home = _open(directory.parent)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = asyncio.Event()

    def disown(self) -> None:
        """Removes the folder if it is a copy of another keeper's: its jobs would be mistaken for this keeper's, and be
        ended. Raises OSError."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._directory)

    async def connect(self, make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        """A connection to the running keeper, or to a new one. Raises OSError or PlatformUnavailable."""
        await asyncio.to_thread(self._require_home)
        if (found := await self._find(make_protocol)) is not None:
            return found
        await self._start()
        if (found := await self._find(make_protocol)) is not None:
            return found
        pid = await asyncio.to_thread(lock_holder, self._lock)
        raise PlatformUnavailable(
            f"the keeper of {self._directory} (process {pid}) does not answer at {self._socket}: if this persists,"
            " its trials continue, and their results are read when the last of them has ended"
        )

    async def reap(self) -> None:
        """Reaps our keeper process after its end. Ends only by cancellation."""
        while True:
            await self._started.wait()
            self._started.clear()
            if self._process is not None and self._process.poll() is None:
                await _end_of(self._process.pid)
                self._process.poll()

    async def ended(self, within_s: float) -> None:
        """Returns when no keeper runs, or after `within_s` seconds: a keeper with a job stays."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for pid in await asyncio.to_thread(self._running):
                    with suppress(ProcessLookupError):
                        await _end_of(pid)
        if self._process is not None:
            self._process.poll()

    def _running(self) -> set[int]:
        """The process that holds the lock, and our own one, which outlives its lock for a moment."""
        found = {lock_holder(self._lock)}
        if self._process is not None and self._process.poll() is None:
            found.add(self._process.pid)
        return {pid for pid in found if pid is not None}

    def _require_home(self) -> None:
        """Ensures that the daemon's folder is the one it started with; a keeper in another folder would belong to
        another daemon. Raises PlatformUnavailable."""
        if self._home is None:
            self._home = _open(self._directory.parent)
        elif not _is_at(self._home, self._directory.parent):
            raise PlatformUnavailable(
                f"the folder {self._directory.parent} was moved, deleted or replaced while this daemon (process"
                f" {os.getpid()}) ran: end the daemon and start it again"
            )

    async def _find(self, make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport | None:
        """A connection to a running keeper; None: there is none.

        An earlier daemon with another runtime directory may have started it elsewhere.
        """
        with suppress(FileNotFoundError, ConnectionRefusedError):
            if (found := await self._join(make_protocol, str(self._socket))) is not None:
                return found
        for path in await asyncio.to_thread(self._recorded):
            with suppress(OSError):  # it may be in another user's directory; a living keeper holds the lock
                if (found := await self._join(make_protocol, path)) is not None:
                    return found
        return None

    def _recorded(self) -> list[str]:
        """The path of the last keeper's socket; None: no lock file names one."""
        with suppress(FileNotFoundError):
            return self._lock.read_text(encoding="utf-8", errors="surrogateescape").splitlines()[1:2]
        return []

    async def _join(self, make_protocol: Callable[[], asyncio.Protocol], path: str) -> asyncio.Transport | None:
        """A connection to the keeper at `path`; None: it belongs to another directory.

        That directory had this name before, and was moved or deleted.
        """
        ours = await asyncio.to_thread(lock_holder, self._lock)
        transport, _ = await asyncio.get_running_loop().create_unix_connection(make_protocol, path)
        if _peer(transport) == ours:
            return transport
        transport.abort()
        return None

    async def _start(self) -> None:
        """Starts a keeper in its own session and waits for its line. One that finds another running ends quietly."""
        await asyncio.to_thread(self._directory.mkdir, mode=0o700, parents=True, exist_ok=True)
        if self._process is not None:
            self._process.poll()  # reaps the dead one
        ready = await self._begun()
        assert self._process is not None, "begun"
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                word = await _read(ready)
        except TimeoutError:
            self._process.kill()
            raise PlatformUnavailable(f"the keeper did not start within {_START_TIMEOUT_S:.0f} s") from None
        if not word:
            raise PlatformUnavailable(f"the keeper did not start: {await asyncio.to_thread(self._last_words)}")

    async def _begun(self) -> int:
        """As `_begin`, in a thread."""
        try:
            return await to_its_end(self._begin, undo=os.close)
        finally:
            self._started.set()

    def _begin(self) -> int:
        """Starts the process; returns the end of the pipe through which it reports that it is ready.

        The other end is opened and closed in this thread: closed elsewhere, its descriptor could be reused before the
        process inherits it, and the line would go to another file.
        """
        read_end, write_end = os.pipe()
        try:
            self._process = self._spawn(write_end)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        return read_end

    def _last_words(self) -> str:
        words = self._errors.read_text(encoding="utf-8", errors="replace").strip()
        return words[-500:] or f"see {self._errors.with_name('keeper.log')}"

    def _spawn(self, ready: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "trial_runner.keeper", "serve"]
        command += ["--directory", str(self._directory), "--socket", str(self._socket), "--ready-fd", str(ready)]
        with self._errors.open("wb") as errors:
            return subprocess.Popen(
                command,
                pass_fds=(ready,),
                start_new_session=True,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=without_settings(os.environ),
            )


@asynccontextmanager
async def connected(process: LocalKeeper, name: str = "local") -> AsyncIterator[Keeper]:
    """The keeper as its clients see it, connected while it has a listener. Its jobs continue after the context."""
    keeper = Keeper(process.connect, name)
    tasks = [asyncio.create_task(keeper.run(), name="keeper"), asyncio.create_task(process.reap(), name="keeper's end")]
    for task in tasks:
        task.add_done_callback(_note_end)
    try:
        yield keeper
    finally:
        await ended(*tasks)


def _note_end(task: asyncio.Task[None]) -> None:
    """Logs the end of a keeper's task: only cancellation should end it, and no other task awaits it."""
    if not task.cancelled():
        log.error(
            "the task %r ended: trials of this machine are not followed any more",
            task.get_name(),
            exc_info=task.exception(),
        )


def _open(folder: Path) -> int | None:
    with suppress(OSError):
        return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _peer(transport: asyncio.Transport) -> int:
    """The id of the process that listens at the other end."""
    # uvloop's socket wrapper has no options
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as ours:
        return int.from_bytes(ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder)


async def _end_of(pid: int) -> None:
    """Returns when a process has ended. Raises ProcessLookupError."""
    with Descriptor(os.pidfd_open(pid)) as process:
        await readable(process)


async def _read(descriptor: int) -> bytes:
    """The line from the pipe; empty if it is closed without one. Closes this end.

    uvloop's `connect_read_pipe` would close it twice, the second time perhaps a descriptor that a thread just opened.
    """
    with Descriptor(descriptor):
        await readable(descriptor)
        return os.read(descriptor, 64)
