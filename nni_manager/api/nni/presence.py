"""A process for every experiment that a client of NNI's holds on to.

NNI has a process per experiment. Its Python client asks for that process's id, and `stop()` waits until the process is
gone, for ever if need be. The daemon does not end with an experiment, so such a client is told the id of a process that
does nothing but end with it. It also ends with the daemon, whose end of its pipe it reads; and whoever terminates it,
as those clients do where the API does not answer, stops the experiment.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from weakref import WeakKeyDictionary

from nni_manager.domain.errors import NniManagerError
from nni_manager.scheduler.open_experiment import OpenExperiment
from nni_manager.scheduler.service import Service

log = logging.getLogger(__name__)

#: Ends when nothing more can come.
_COMMAND = "cat"


class Presences:
    """Made when they are asked for: most experiments have none."""

    def __init__(self, service: Service, stopping: asyncio.Event) -> None:
        """`stopping`: the daemon ends, and experiments go on."""
        self._service = service
        self._stopping = stopping
        self._processes: WeakKeyDictionary[OpenExperiment, Process] = WeakKeyDictionary()
        self._watches: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    async def pid(self, experiment: OpenExperiment) -> int | None:
        """Of a process that is there as long as the experiment is open; None where none can be started."""
        async with self._turn:
            process = self._processes.get(experiment)
            if process is None or process.returncode is not None:
                process = await _start()
                if process is None:
                    return None
                self._processes[experiment] = process
                self._watch(experiment, process)
            return process.pid

    def _watch(self, experiment: OpenExperiment, process: Process) -> None:
        watch = asyncio.create_task(self._end_together(experiment, process), name=f"presence of {experiment.id}")
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _end_together(self, experiment: OpenExperiment, process: Process) -> None:
        closing = asyncio.create_task(self._closed(experiment), name=f"end of {experiment.id}")
        ending = asyncio.create_task(process.wait(), name=f"end of process {process.pid}")
        await asyncio.wait({closing, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            assert process.stdin is not None
            process.stdin.close()
            await ending
        elif process.returncode == -signal.SIGTERM and not self._stopping.is_set():
            # else whoever ends the daemon has told all of its processes
            await self._stop(experiment.id)
        closing.cancel()

    async def _closed(self, experiment: OpenExperiment) -> None:
        with experiment.changes.watch() as news:
            while self._service.at_work(experiment.id) is experiment:
                await news.wait()
                news.clear()

    async def _stop(self, id_: str) -> None:
        try:
            await self._service.stop(id_)
        except NniManagerError as error:
            log.error("experiment %s was not stopped: %s", id_, error)


async def _start() -> Process | None:
    """In a session of its own: what a terminal sends to the daemon's group is not for it."""
    try:
        return await asyncio.create_subprocess_exec(
            _COMMAND, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
        )
    except OSError as error:
        log.warning("NNI's client is told no process id: %s cannot be started (%s)", _COMMAND, error)
        return None
