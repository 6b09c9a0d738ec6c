"""One TensorBoard: its port and its process, and the folder of links that it shows.

The process ends with the daemon, even a killed one: a shell next to it waits for the end of its own input, which only
the daemon holds open, and ends them all.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from nni_manager.domain.errors import Conflict, InvalidInput
from nni_manager.domain.text import last_line
from nni_manager.platform_kit import child_process
from nni_manager.scheduler.tensorboard import folders
from nni_manager.scheduler.tensorboard.folders import TrialLogs

HOST = "127.0.0.1"
#: Seconds for its start: it imports much.
_PATIENCE_S = 60.0
_READY = re.compile(r"https?://\S+:(\d+)/")
#: Messages of the kernel and TensorBoard about a used port.
_TAKEN = "already in use"
_LINES = 20
_WITH_DAEMON = """\
exec 3<&0
"$@" < /dev/null 3<&- &
child=$!
{ cat <&3; kill -KILL 0; } > /dev/null 2>&1 &
exec 3<&-
wait $child
"""


class BoardStatus(StrEnum):
    """Statuses in NNI's words."""

    #: It is being started.
    DOWNLOADING_DATA = "DOWNLOADING_DATA"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    ERROR = "ERROR"


class Board:
    """A TensorBoard of some trials."""

    def __init__(self, id: str, experiment_id: str, logs: Sequence[TrialLogs], folder: Path, port: int) -> None:
        """`folder`: its own, created here and removed with it."""
        self.id = id
        self.experiment_id = experiment_id
        self.logs = tuple(logs)
        self.port = port
        self.status = BoardStatus.DOWNLOADING_DATA
        self._folder = folder
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._last: deque[str] = deque(maxlen=_LINES)
        self._is_ready = asyncio.Event()
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def has_ended(self) -> bool:
        """Whether it ran and ended on its own; `start` reports an end during the start."""
        if self._process is None or self.status is BoardStatus.DOWNLOADING_DATA:
            return False
        return self._process.returncode is not None

    @property
    def found_port_taken(self) -> bool:
        """Whether another program had its port at its start; that may have ended since."""
        return any(_TAKEN in line for line in self._last) or not is_free_port(self.port)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"

    async def start(self, program: str, environment: Mapping[str, str]) -> None:
        """Returns once it answers. Raises InvalidInput with its last words, Conflict if it was closed meanwhile;
        nothing is left then."""
        try:
            await asyncio.to_thread(folders.make_links, self._folder, self.logs)
            command = (program, "--logdir", str(self._folder), "--host", HOST, "--port", str(self.port))
            self._process = await child_process.start(
                *("sh", "-c", _WITH_DAEMON, "tensorboard", *command),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=PIPE,
                env=dict(environment),
                start_new_session=True,
            )
            self._reading = asyncio.create_task(self._read(self._process), name=f"tensorboard {self.id}")
            await self._until_ready()
        except BaseException:
            self.status = BoardStatus.ERROR
            await self.close()
            raise

    async def close(self) -> None:
        """Ends the process and all its descendants, also while starting. Idempotent."""
        self._is_closed = True
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        if self._reading is not None:
            await asyncio.wait({self._reading})
        await asyncio.to_thread(folders.remove_links, self._folder)
        self.status = BoardStatus.ERROR if self.status is BoardStatus.ERROR else BoardStatus.STOPPED

    async def _until_ready(self) -> None:
        try:
            self._refuse_closed()
            async with asyncio.timeout(_PATIENCE_S):
                await self._is_ready.wait()
        except TimeoutError:
            raise InvalidInput(f"TensorBoard did not start within {_PATIENCE_S:g} s{self._words}") from None
        self._refuse_closed()
        if self.status is not BoardStatus.RUNNING:
            raise InvalidInput(f"TensorBoard ended at once{self._words}")

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise Conflict("the TensorBoard was stopped while it started")

    @property
    def _words(self) -> str:
        said = last_line("\n".join(self._last))
        return f": {said}" if said else ""

    async def _read(self, process: Process) -> None:
        """Reads its output until it ends; the line with its address means that it answers."""
        assert process.stderr is not None
        ended = asyncio.create_task(process.wait())
        try:
            while True:
                line = asyncio.create_task(process.stderr.readline())
                await asyncio.wait({line, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not line.done() or not line.result():
                    line.cancel()
                    break
                self._take(line.result().decode(errors="replace"))
        except ValueError:  # a line without an end
            self._last.append("it wrote a line that is too long")
        finally:
            await ended
            self._is_ready.set()

    def _take(self, line: str) -> None:
        self._last.append(line)
        if (found := _READY.search(line)) is not None and int(found[1]) == self.port:
            self.status = BoardStatus.RUNNING
            self._is_ready.set()


FIRST, _COUNT = 6006, 200
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"


def free_port(taken: Collection[int], wanted: int | None = None) -> int:
    """The wanted port, or the first free one from 6006 on. Raises Conflict."""
    if wanted is not None:
        if wanted in taken or not is_free_port(wanted):
            raise Conflict(f"port {wanted} is in use; choose another one, or none")
        return wanted
    for port in range(FIRST, FIRST + _COUNT):
        if port not in taken and is_free_port(port):
            return port
    raise Conflict(f"the ports from {FIRST} to {FIRST + _COUNT - 1} are in use; stop a TensorBoard")


def is_free_port(port: int) -> bool:
    """Whether a program could listen on it now."""
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return True
    return False


def connected_ports() -> set[int]:
    """Local ports with a connection, or one that ended within the last minute, from the kernel's table."""
    found: set[int] = set()
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text(encoding="ascii").splitlines()[1:]:
                _, local, other, state, *_ = line.split()
                if state != _LISTENS:  # both ends: on one machine only the browser's end may be left
                    found |= {int(end.rpartition(":")[2], 16) for end in (local, other)}
    return found
