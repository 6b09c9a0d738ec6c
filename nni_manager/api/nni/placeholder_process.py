"""A process for every open experiment, for NNI's tools.

NNI has a process per experiment. Its list of experiments and its API name that process's id; its Python client's
`stop()` waits until the process is gone, for ever if need be; its `nnictl stop` terminates it and does no more. The
daemon does not end with an experiment, so these tools are told the id of a process that does nothing but end with it.
It also ends with the daemon, whose end of its pipe it reads; and whoever terminates it stops the experiment.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import suppress

from nni_manager.domain.errors import NniManagerError
from nni_manager.scheduler.experiments.commands import ExperimentCommands

log = logging.getLogger(__name__)

#: Ends when nothing more can come.
_COMMAND = "cat"
#: Who ends the daemon may tell all of its processes, and the daemon last; in seconds.
_DAEMON_TOO_S = 0.3
#: Until one that died is missed, in seconds: where all die at once they must not be started without a pause.
_AGAIN_S = 2.0


class PlaceholderProcesses:
    """Made when they are asked for, one per experiment; shared by all that name one. One per daemon."""

    def __init__(self, service: ExperimentCommands, stopping: asyncio.Event) -> None:
        """`stopping`: the daemon ends, and experiments go on."""
        self._service = service
        self._stopping = stopping
        self._processes: dict[str, Process] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        #: Called when a process that was named is gone, and its experiment may be open.
        self.on_loss: Callable[[], None] = lambda: None
        service.on_closed(self._end)

    async def pid(self, id_: str) -> int | None:
        """The pid of a process that is there while the experiment is open; None for a closed one, or where none can be
        started."""
        async with self._turn:
            process = self._processes.get(id_)
            if process is None or process.returncode is not None:
                process = await self._begin(id_)
            return process.pid if process is not None else None

    async def _begin(self, id_: str) -> Process | None:
        process = await _start() if self._service.is_open(id_) else None
        if process is None:
            return None
        self._processes[id_] = process
        watch = asyncio.create_task(self._watch(id_, process), name=f"placeholder process of {id_}")
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        if not self._service.is_open(id_):  # closed meanwhile
            self._end(id_)
        return process

    def _end(self, id_: str) -> None:
        process = self._processes.pop(id_, None)
        if process is not None and process.stdin is not None:
            process.stdin.close()

    async def _watch(self, id_: str, process: Process) -> None:
        await process.wait()
        if self._processes.get(id_) is not process:
            return  # it ended with its experiment
        if process.returncode == -signal.SIGTERM and not await self._does_daemon_end():
            await self._stop(id_)
        else:
            await asyncio.sleep(_AGAIN_S)
        self.on_loss()

    async def _does_daemon_end(self) -> bool:
        """Then it was not the experiment that somebody wanted to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DAEMON_TOO_S):
                await self._stopping.wait()
        return self._stopping.is_set()

    async def _stop(self, id_: str) -> None:
        log.info("experiment %s is stopped: its process was terminated", id_, extra={"action": "stop"})
        try:
            await self._service.stop(id_)
        except NniManagerError as error:
            log.error("experiment %s was not stopped: %s", id_, error)


async def _start() -> Process | None:
    """Starts a process in a session of its own: what a terminal sends to the daemon's group is not for it."""
    try:
        return await asyncio.create_subprocess_exec(
            _COMMAND, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
        )
    except OSError as error:
        log.warning("NNI's tools are told no process of an experiment: %s cannot be started (%s)", _COMMAND, error)
        return None
