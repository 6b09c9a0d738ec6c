"""Files of attempts, wherever they are: in the attempt's folder on this machine, else at its training service."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nni_manager.domain.errors import NotFound, PlatformUnavailable
from nni_manager.domain.ids import attempt_directory, checkpoint_directory_of
from nni_manager.domain.job import JobHandle
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.scheduler.turns import forgetting
from nni_manager.scheduler.turns.forgetting import ReadFile
from nni_manager.scheduler.turns.training_service import TrainingService
from nni_manager.store.experiment import jobs
from trial_runner import protocol
from trial_runner.wire import foreign_files


class LogFile(Protocol):
    """A file that may grow, shrink or be replaced at any time. Its methods raise NotFound or PlatformUnavailable."""

    #: Whether it lies on this machine, where looking costs next to nothing.
    is_here: bool

    async def size(self) -> int:
        """Bytes that it holds now."""

    async def read(self, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` on, which is not negative; none at its end."""


class FileHere:
    """A file below a folder of this machine. No link on the way is followed."""

    is_here = True

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = str(folder)
        self._name = name

    async def size(self) -> int:
        try:
            return await asyncio.to_thread(foreign_files.size, self._folder, self._name)
        except OSError:
            raise self._missing() from None

    async def read(self, offset: int, limit: int) -> bytes:
        try:
            return await asyncio.to_thread(foreign_files.read, self._folder, self._name, offset, limit)
        except OSError:
            raise self._missing() from None

    def _missing(self) -> NotFound:
        return NotFound(f"there is no {self._name.rpartition('/')[2]} yet, or it was removed")


class FileAtService:
    """A file of a job, read through its training service."""

    is_here = False

    def __init__(self, handle: JobHandle, read_file: ReadFile, name: str) -> None:
        self._handle = handle
        self._read_file = read_file
        self._name = name

    async def size(self) -> int:
        return await forgetting.log_size(self._handle, self._name, self._read_file)

    async def read(self, offset: int, limit: int) -> bytes:
        return await self._read_file(self._handle, self._name, offset, limit)


@dataclass(frozen=True, slots=True)
class AttemptFiles:
    """The files of an attempt: those here, and those that its training service names besides."""

    here: Sequence[str]
    at_service: Sequence[str] = ()
    #: Why the service names none; empty: it did, or the attempt has no files there.
    why: str = ""


#: Before the names of files in the checkpoint folder of a trial.
_CHECKPOINT = f"{protocol.CHECKPOINT_FOLDER}/"


async def files(service: ExperimentCommands, id: str, trial_id: str, attempt: int) -> AttemptFiles:
    """The names of all files that `file` finds; none begins with a dot."""
    trials = str((await service.entry(id)).folder.trials)
    name = attempt_directory(trial_id, attempt)
    own, kept = await asyncio.to_thread(
        lambda: (_listed(trials, name, ""), _listed(trials, checkpoint_directory_of(name), _CHECKPOINT))
    )
    here = tuple(dict.fromkeys([*own, *kept]))
    try:
        of_job = await _of_job(service, id, trial_id, attempt)
        there = () if of_job is None else await of_job[1].list_files(of_job[0])
    except (NotFound, PlatformUnavailable) as error:
        return AttemptFiles(here, why=str(error))
    return AttemptFiles(here, [name for name in there if name not in here])


def _listed(trials: str, folder: str, prefix: str) -> list[str]:
    return [prefix + path.removeprefix(f"{folder}/") for path in foreign_files.listing(trials, folder).files]


async def file(service: ExperimentCommands, id: str, trial_id: str, attempt: int, name: str) -> LogFile:
    """A file that `files` names. Raises NotFound."""
    trials, folder = (await service.entry(id)).folder.trials, attempt_directory(trial_id, attempt)
    found: LogFile = FileHere(trials, f"{folder}/{name}")
    with suppress(NotFound):
        await found.size()
        return found
    if name.startswith(_CHECKPOINT):
        found = FileHere(trials, f"{checkpoint_directory_of(folder)}/{name.removeprefix(_CHECKPOINT)}")
        with suppress(NotFound):
            await found.size()
            return found
    of_job = await _of_job(service, id, trial_id, attempt)
    if of_job is None:
        raise NotFound(f"there is no file {name!r} of attempt {attempt} of trial {trial_id}")
    return FileAtService(of_job[0], of_job[1].read_file, name)


async def find(service: ExperimentCommands, id: str, trial_id: str, attempt: int, name: str) -> LogFile:
    """A file of an attempt; one that is not on this machine is looked for at the service of a job that it has.

    Raises NotFound, naming the file, where it is in neither place.
    """
    folder = (await service.entry(id)).folder.trials
    here = FileHere(folder, f"{attempt_directory(trial_id, attempt)}/{name}")
    try:
        await here.size()
    except NotFound:
        found = await _of_job(service, id, trial_id, attempt, forgotten=False)
        job = found and (found[0], found[1].read_file)
        if job is None:
            raise
        return FileAtService(*job, name)
    return here


async def _of_job(
    service: ExperimentCommands, id: str, trial_id: str, attempt: int, *, forgotten: bool = True
) -> tuple[JobHandle, TrainingService] | None:
    """The job and its training service, where that reads files; None: unknown."""
    experiment = service.at_work(id)
    if experiment is None:
        return None
    found = await experiment.database.read(lambda c: jobs.handle(c, trial_id, attempt, forgotten=forgotten))
    of_job = experiment.loop.services.get(found[0]) if found is not None else None
    if found is None or of_job is None or not of_job.platform.capabilities.reads_files:
        return None
    return found[1], of_job
