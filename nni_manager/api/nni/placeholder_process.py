"""A process for every open experiment, for NNI's tools.

NNI has a process per experiment, whose id is in its list of experiments and its API. Its Python client's `stop()`
waits without limit for the process's end, and its `nnictl stop` only terminates the process. One daemon serves many
experiments, so these tools get the id of an idle process that ends with the experiment. It also ends with the daemon,
when its pipe closes. Terminating it stops the experiment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import suppress

from nni_manager.domain.errors import NniManagerError
from nni_manager.platform_kit import child_process
from nni_manager.platform_kit.tasks import ended, happened
from nni_manager.scheduler.experiments.commands import ExperimentCommands

log = logging.getLogger(__name__)

#: Ends when its standard input closes.
_COMMAND = "cat"
#: Seconds to wait for the daemon's end: a signal to all its processes may reach the daemon last.
_DAEMON_TOO_S = 0.3
#: Seconds before a dead process is replaced, so that processes that keep dying are not restarted without a pause.
_AGAIN_S = 2.0
#: Seconds for which a start is retried during a shortage; the next request retries it, too.
_START_PATIENCE_S = 1.0


class PlaceholderProcesses:
    """The processes of all experiments, each started on first use. One object per daemon."""

    def __init__(self, commands: ExperimentCommands, stopping: asyncio.Event) -> None:
        """`stopping`: set when the daemon ends, which does not stop experiments."""
        self._commands = commands
        self._stopping = stopping
        self._processes: dict[str, Process] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        #: Called when a published process has ended although its experiment may be open.
        self.on_loss: Callable[[], None] = lambda: None
        commands.on_closed(self._end)

    async def pid(self, id_: str) -> int | None:
        """The id of a process that lives while the experiment is open.

        None if the experiment is closed, or no process can be started.
        """
        async with self._turn:
            process = self._processes.get(id_)
            if process is None or process.returncode is not None:
                process = await self._begin(id_)
            return process.pid if process is not None else None

    async def close(self) -> None:
        """End all processes without stopping experiments. Idempotent."""
        processes, self._processes = list(self._processes.values()), {}
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()  # a paused process would not notice that its pipe closed
            await process.wait()
        await ended(*self._watches)

    async def _begin(self, id_: str) -> Process | None:
        process = await _start() if self._commands.is_open(id_) else None
        if process is None:
            return None
        self._processes[id_] = process
        watch = asyncio.create_task(self._watch(id_, process), name=f"placeholder process of {id_}")
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        if not self._commands.is_open(id_):  # closed in the meantime
            self._end(id_)
        return process

    def _end(self, id_: str) -> None:
        process = self._processes.pop(id_, None)
        if process is not None and process.stdin is not None:
            process.stdin.close()

    async def _watch(self, id_: str, process: Process) -> None:
        await process.wait()
        if self._processes.get(id_) is not process:
            return  # it was ended with its experiment
        # if the daemon ends by the same signal, the signal was not a request to stop the experiment
        if process.returncode == -signal.SIGTERM and not await happened(self._stopping, asyncio.timeout(_DAEMON_TOO_S)):
            await self._stop(id_)
        else:
            await asyncio.sleep(_AGAIN_S)
        self.on_loss()

    async def _stop(self, id_: str) -> None:
        log.info("experiment %s is stopped: its process was terminated", id_, extra={"action": "stop"})
        try:
            await self._commands.stop(id_)
        except NniManagerError as error:
            log.error("stopping experiment %s failed: %s", id_, error)


async def _start() -> Process | None:
    """Start a process in a new session, without the daemon's environment, which has its token.

    In a new session, signals of a terminal to the daemon's group do not reach it.
    """
    try:
        return await child_process.start(
            _COMMAND,
            patience_s=_START_PATIENCE_S,
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
        )
    except OSError as error:
        log.warning("NNI's tools get no process id for an experiment: %s cannot be started (%s)", _COMMAND, error)
        return None
