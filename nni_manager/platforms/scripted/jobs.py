"""The cluster's memory of its jobs: one file per job in the experiment's folder, so that it outlives the daemon."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nni_manager.platform_kit.payload import write_private
from nni_manager.platforms.scripted.config import Rule
from trial_runner.wire import foreign_files, removal

log = logging.getLogger(__name__)

_JOB_FILE = "job.json"
#: Maximum size of a job's file in bytes.
_MOST_BYTES = 4 * 1024 * 1024
_CLUSTER_FILE = "cluster.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it was submitted, and the requests since. Times are milliseconds since the epoch."""

    name: str
    rule: Rule
    submitted_ms: int
    #: The attempt's folder here, and its runner's working folder: the container's own, or shared.
    attempt_directory: str
    system_directory: str
    grace_s: float
    #: The job's machine, if the service has machines.
    machine: str = ""
    places: tuple[int, ...] = ()
    #: When its end was requested.
    cancelled_ms: int | None = None
    #: Its container had not started when the end was requested.
    cancelled_unstarted: bool = False

    @property
    def starts_ms(self) -> int:
        return self.submitted_ms + round(self.rule.delay * 1000)


class Jobs:
    """The files of jobs, written atomically. `folder`: the service's in the experiment's folder.

    Methods raise OSError.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writing = asyncio.Lock()

    def folder_of(self, name: str) -> Path:
        return self.folder / name

    async def begin(self, now_ms: int) -> None:
        """Starts the cluster's time on first use."""
        if not (self.folder / _CLUSTER_FILE).exists():
            await asyncio.to_thread(
                write_private, self.folder / _CLUSTER_FILE, json.dumps({"begunMs": now_ms}).encode()
            )

    async def begun_ms(self) -> int:
        text = await asyncio.to_thread((self.folder / _CLUSTER_FILE).read_text)
        return int(json.loads(text)["begunMs"])

    async def add(self, job: Job) -> Job:
        """Adds a job and returns the job of its name: the first one wins."""
        async with self._writing:
            known = await asyncio.to_thread(self._read, job.name)
            if known is None:
                await asyncio.to_thread(self._put, job)
            return known or job

    async def replace(self, job: Job) -> None:
        async with self._writing:
            await asyncio.to_thread(self._put, job)

    async def find(self, names: Iterable[str]) -> dict[str, Job]:
        """The known jobs with these names."""
        found = await asyncio.to_thread(lambda: [self._read(name) for name in names])
        return {job.name: job for job in found if job is not None}

    async def remove(self, name: str) -> None:
        """Removes a job: its file first, so that it is not found again. Ignores missing jobs."""
        await asyncio.to_thread(self._remove, name)

    def _remove(self, name: str) -> None:
        (self.folder_of(name) / _JOB_FILE).unlink(missing_ok=True)
        for finding in removal.remove(str(self.folder_of(name))):
            log.warning("job %s: %s", name, finding)

    def _read(self, name: str) -> Job | None:
        try:
            entry = json.loads(foreign_files.read(str(self.folder_of(name)), _JOB_FILE, 0, _MOST_BYTES))
        except FileNotFoundError:
            return None
        places = tuple(entry.get("places", ()))
        return Job(**{**entry, "rule": Rule.model_validate(entry["rule"]), "places": places})

    def _put(self, job: Job) -> None:
        entry = {name: getattr(job, name) for name in job.__slots__}
        entry["rule"] = job.rule.model_dump(by_alias=True, exclude_none=True)
        write_private(self.folder_of(job.name) / _JOB_FILE, json.dumps(entry).encode())
