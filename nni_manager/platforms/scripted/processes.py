"""Jobs that are processes of this machine, kept by its keeper, so that they outlive the daemon.

The keeper knows their exit codes and nothing of their results: the runner's folder is below the one that it follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import NniManagerError
from nni_manager.platform_kit.contract import Host
from nni_manager.platforms.scripted.events import Events
from nni_manager.platforms.scripted.jobs import Jobs
from nni_manager.platforms.scripted.states import Process
from trial_runner import protocol

log = logging.getLogger(__name__)

#: Seconds that `forget` waits for a process which has said its last word and is about to end.
_LAST_MOMENT_S = 2.0


class Processes:
    """A keeper's `Listener`. Methods raise PlatformUnavailable."""

    def __init__(self, host: Host, jobs: Jobs, events: Events) -> None:
        self._keeper = host.keeper
        self._owner = f"scripted:{host.experiment_id}"
        self._jobs = jobs
        self._events = events
        #: Forgotten jobs whose processes are not gone, or whose end the keeper still keeps.
        self._leaving: set[str] = set()
        self._gone: set[str] = set()
        self._ended = asyncio.Event()

    async def enter(self) -> None:
        await self._keeper.listen(self._owner, self)

    def leave(self) -> None:
        self._keeper.leave(self._owner)

    async def start(
        self, job_name: str, folder: Path, command: str, environment: Mapping[str, str], grace_s: float
    ) -> None:
        """In `folder`, which is made. Raises SubmitRejected, too."""
        await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        await self._keeper.request(
            "spawn", name=job_name, owner=self._owner, command=command, environment=dict(environment),
            directory=str(folder), attempt_directory=str(folder), files={}, grace_s=grace_s,
        )  # fmt: skip

    async def all(self) -> dict[str, Process]:
        """Those of this experiment."""
        if self._gone:
            gone, self._gone = self._gone, set()
            await self._keeper.request("forget", names=sorted(gone))
        jobs: dict[str, dict[str, Any]] = (await self._keeper.request("list"))["jobs"]
        return {name: job for name, job in jobs.items() if job["owner"] == self._owner}

    async def end(self, job_name: str, grace_s: float) -> None:
        """Asks all its processes to; quiet for a job that is unknown."""
        await self._keeper.request("signal", name=job_name, grace_s=grace_s)

    async def forget(self, names: Sequence[str]) -> None:
        """Ends what still runs of them, and has the keeper forget the rest."""
        self._leaving |= set(names)  # before it is asked which of them run: an end is told once, perhaps meanwhile
        processes = await self.all()
        known = {name for name in names if name in processes}
        running = {name for name in known if processes[name]["state"] == protocol.RUNNING}
        self._leaving -= set(names) - running
        await self._send_off(running)
        ended = known - self._leaving
        self._gone -= ended
        await self._keeper.request("forget", names=sorted(ended))

    async def on_connected(self) -> None:
        try:
            await self._pick_up()
        except NniManagerError as error:
            log.warning("the keeper's jobs cannot be followed yet: %s", error)
        self._events.wake("")

    def on_disconnected(self) -> None:
        self._events.wake("")

    async def on_lines(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> None:
        """Nothing: results come through the runner or not at all."""

    def on_ended(self, job_name: str, job: dict[str, Any]) -> None:
        if job_name in self._leaving:
            self._leaving.discard(job_name)
            self._gone.add(job_name)
            self._ended.set()
        self._events.wake(job_name)

    async def _pick_up(self) -> None:
        """The keeper tells of the ends of jobs that it is asked for; those nobody knows any more are ended."""
        processes = await self.all()
        known = await self._jobs.find(processes)
        self._leaving |= processes.keys() - known.keys()
        for name in self._leaving:
            await self.end(name, 0)
        await self._keeper.request("follow", jobs={name: {} for name in processes})

    async def _send_off(self, names: set[str]) -> None:
        for name in names & self._leaving:
            await self.end(name, 0)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_MOMENT_S):
                while names & self._leaving:
                    self._ended.clear()
                    await self._ended.wait()
