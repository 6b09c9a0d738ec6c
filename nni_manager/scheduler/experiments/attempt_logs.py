"""Files of attempts: in the attempt's folder on this machine, or at its training service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import NotFound, PlatformUnavailable
from nni_manager.domain.ids import attempt_directory, checkpoint_directory_of
from nni_manager.domain.job import JobHandle
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.scheduler.turns import forgetting
from nni_manager.scheduler.turns.training_service import TrainingService
from nni_manager.store.experiment import jobs
from trial_runner import protocol
from trial_runner.wire import foreign_files

#: Bytes per read.
_PIECE = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """A file that may grow, shrink or be replaced at any time. Its calls raise NotFound or PlatformUnavailable."""

    #: Whether it is on this machine, where reading costs next to nothing.
    is_here: bool
    #: Its size in bytes now.
    size: Callable[[], Awaitable[int]]
    #: (offset, limit): at most `limit` bytes from `offset` on, which is not negative; empty at its end.
    read: Callable[[int, int], Awaitable[bytes]]

    async def pieces(self, position: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `position` up to `end`; fewer if the file has shrunk."""
        while position < end and (data := await self.read(position, min(_PIECE, end - position))):
            position += len(data)
            yield data


def file_here(folder: Path, name: str) -> LogFile:
    """A file below a folder of this machine. Symbolic links on the way are not followed."""

    async def ask(question: Callable[..., Any], *stretch: int) -> Any:
        try:
            return await asyncio.to_thread(question, str(folder), name, *stretch)
        except OSError:
            raise NotFound(f"{name.rpartition('/')[2]} does not exist yet, or was removed") from None

    return LogFile(is_here=True, size=partial(ask, foreign_files.size), read=partial(ask, foreign_files.read))


def _at_service(handle: JobHandle, service: TrainingService, name: str) -> LogFile:
    size, read = partial(forgetting.log_size, handle, name, service.read_file), partial(service.read_file, handle, name)
    return LogFile(is_here=False, size=size, read=read)


@dataclass(frozen=True, slots=True)
class AttemptFiles:
    """The files of an attempt: those here, and others that its training service lists."""

    here: Sequence[str]
    at_service: Sequence[str] = ()
    #: Why the service lists none; empty: it did, or the attempt has no files there.
    why: str = ""


#: Prefix of the names of files in a trial's checkpoint folder.
_CHECKPOINT = f"{protocol.CHECKPOINT_FOLDER}/"


async def files(commands: ExperimentCommands, id: str, trial_id: str, attempt: int) -> AttemptFiles:
    """The names of all files that `find` finds; none begins with a dot."""
    trials = str((await commands.entry(id)).folder.trials)
    name = attempt_directory(trial_id, attempt)
    own, kept = await asyncio.to_thread(
        lambda: (_listed(trials, name, ""), _listed(trials, checkpoint_directory_of(name), _CHECKPOINT))
    )
    here = tuple(dict.fromkeys([*own, *kept]))
    try:
        of_job = await _of_job(commands, id, trial_id, attempt, forgotten=True)
        there = () if of_job is None else await of_job[1].list_files(of_job[0])
    except (NotFound, PlatformUnavailable) as error:
        return AttemptFiles(here, why=str(error))
    return AttemptFiles(here, [name for name in there if name not in here])


def _listed(trials: str, folder: str, prefix: str) -> list[str]:
    return [prefix + path.removeprefix(f"{folder}/") for path in foreign_files.listing(trials, folder).files]


async def find(
    commands: ExperimentCommands, id: str, trial_id: str, attempt: int, name: str, *, forgotten: bool = False
) -> LogFile:
    """A file of an attempt. If it is not on this machine, the service of its present job is asked; with `forgotten`, of
    its former job, too.

    Raises NotFound, naming the file, if neither place has it.
    """
    trials, folder = (await commands.entry(id)).folder.trials, attempt_directory(trial_id, attempt)
    places = [f"{folder}/{name}"]
    if name.startswith(_CHECKPOINT):
        places.append(f"{checkpoint_directory_of(folder)}/{name.removeprefix(_CHECKPOINT)}")
    for place in places:
        found = file_here(trials, place)
        with suppress(NotFound):
            await found.size()
            return found
    of_job = await _of_job(commands, id, trial_id, attempt, forgotten=forgotten)
    if of_job is None:
        raise NotFound(f"{name} does not exist yet, or was removed")
    return _at_service(*of_job, name)


async def _of_job(
    commands: ExperimentCommands, id: str, trial_id: str, attempt: int, *, forgotten: bool
) -> tuple[JobHandle, TrainingService] | None:
    """The job and its training service, if that reads files; None: unknown."""
    experiment = commands.at_work(id)
    if experiment is None:
        return None
    found = await experiment.database.read(lambda c: jobs.handle(c, trial_id, attempt, forgotten=forgotten))
    of_job = experiment.loop.services.get(found[0]) if found is not None else None
    if found is None or of_job is None or not of_job.platform.capabilities.reads_files:
        return None
    return found[1], of_job
