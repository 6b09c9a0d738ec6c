"""The folders of a service's jobs on storage that the manager mounts: read while jobs run, and before their ends."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import NotFound
from nni_manager.domain.ids import attempt_directory_of
from nni_manager.domain.job import JobState
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.tasks import ended
from nni_manager.shared_storage import runner_folder
from nni_manager.shared_storage.mounted_storage import MountedStorage
from nni_manager.shared_storage.pull import Pull
from trial_runner.wire import foreign_files

log = logging.getLogger(__name__)

#: Seconds for a container's files to become visible after its end.
_PATIENCE_S = 2.0
_HELD = (JobState.SUCCEEDED, JobState.FAILED)


class JobFolders:
    """The job folders of one adapter, entered and exited with it. `held`: ends that are reported when the files have
    been read, or after `patience_s`."""

    def __init__(self, host: Host, *, patience_s: float = _PATIENCE_S, held: Collection[JobState] = _HELD) -> None:
        self._host = host
        self._patience_s = patience_s
        self._held = held
        self.pull = Pull(host)
        self._storage: MountedStorage | None = None
        self._pulling: asyncio.Task[None] | None = None

    @property
    def storage(self) -> MountedStorage:
        """The mounted storage; only while entered."""
        assert self._storage is not None, "entered"
        return self._storage

    @property
    def is_entered(self) -> bool:
        return self._storage is not None

    def enter(self, storage: MountedStorage) -> None:
        self._storage = storage
        self._pulling = asyncio.create_task(self.pull.run(), name=f"pull {self._host.experiment_id}")

    async def leave(self) -> None:
        """Stops reading the folders. Idempotent."""
        self._storage = None
        pulling, self._pulling = self._pulling, None
        await ended(pulling)

    def here(self, job_name: str) -> Path:
        """The folder of a job on this machine."""
        return self.storage.attempt(attempt_directory_of(job_name)).here

    def told(self, job_name: str, report: Observation, run: str = "") -> Observation:
        """The report for the scheduler: a job has ended when its files have been read. Its files may show that the
        container runs before the platform does. `run`: as `Pull.follow`."""
        if self._pulling is not None and self._pulling.done():
            self._pulling.result()  # raises a bug's exception
        logs = self._host.folder / "trials" / attempt_directory_of(job_name)
        self.pull.follow(job_name, self.here(job_name), logs, run=run)
        if report.state in self._held:
            self.pull.finish(job_name, self._patience_s)
            return report if self.pull.is_over(job_name) else _running(report)
        is_seen = report.state is JobState.PENDING and self.pull.has_started(job_name)
        return _running(report) if is_seen else report

    async def ask_to_stop(self, job_names: Iterable[str]) -> None:
        """Keeps jobs that wait in the service's queue from starting their commands, if their runners start after
        all."""
        await asyncio.gather(*map(self._ask_to_stop, job_names))

    async def _ask_to_stop(self, job_name: str) -> None:
        try:
            await asyncio.to_thread(runner_folder.ask_to_stop, self.here(job_name))
        except OSError as error:  # the service stops it anyway
            log.warning("%s cannot be told in its folder that it is cancelled: %s", job_name, error)

    def forget(self, job_name: str) -> None:
        self.pull.forget(job_name)

    async def files(self, job_name: str) -> Sequence[str]:
        """The files in a job's folder, as `Platform.list_files`."""
        return await asyncio.to_thread(files, self.here(job_name))

    async def read(self, job_name: str, name: str, offset: int, limit: int) -> bytes:
        """Part of a file in a job's folder, as `Platform.read_file`."""
        return await asyncio.to_thread(read_stretch, self.here(job_name), name, offset, limit)


def _running(report: Observation) -> Observation:
    return dataclasses.replace(
        report,
        state=JobState.RUNNING,
        exit_code=None,
        native_reason="",
        cause=None,
        message="",
        ended_ms=None,
        wait=None,
    )


def files(directory: Path) -> Sequence[str]:
    """The paths of the files below `directory`; empty if it is missing. Blocks."""
    found = foreign_files.listing(str(directory.parent), directory.name).files
    return [path.removeprefix(f"{directory.name}/") for path in found]


def read_stretch(directory: Path, name: str, offset: int, limit: int) -> bytes:
    """At most `limit` bytes of a file in `directory`, from `offset` (negative: from the end). Blocks. Raises
    NotFound."""
    try:
        return foreign_files.read(str(directory), name, offset, limit)
    except OSError:
        raise NotFound(f"{directory.name} has no readable file {name!r}") from None
