"""Warns once about a trial on this machine whose output exceeds `maxLogSize`: local logs are not truncated.

Logs are checked when trials start and end, at most once a second, and once a minute while trials run.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from nni_manager.domain.experiment import ExperimentWarning, LiveSpec
from nni_manager.domain.formats import size
from nni_manager.domain.ids import attempt_directory
from nni_manager.scheduler.turns.paced import Paced, Start
from nni_manager.scheduler.turns.training_service import TrainingService
from nni_manager.store.database import Database
from nni_manager.store.experiment import jobs, trial_warnings
from trial_runner import protocol
from trial_runner.wire import foreign_files

log = logging.getLogger(__name__)

#: Code of the warning.
CODE = "LONG_OUTPUT"
#: Seconds between two checks while trials run, as no event reports growth.
_EVERY_S = 60.0

#: Trial and number of an attempt.
AttemptId = tuple[str, int]


class LongOutput(NamedTuple):
    """An attempt with more output than `maxLogSize`."""

    trial_id: str
    #: The longest of its logs.
    file: str
    #: Size of that file, and of all logs of the attempt.
    bytes: int
    all_bytes: int


class OutputWatch:
    """The output of one experiment's trials. `services`: by name, shared with the loop; `trials`: the folder of their
    attempts; `changed`: called after the warning was stored."""

    def __init__(
        self,
        *,
        services: Mapping[str, TrainingService],
        database: Database,
        spec: LiveSpec,
        trials: Path,
        changed: Callable[[], None],
    ) -> None:
        self._services = services
        self._database = database
        self._spec = spec
        self._trials = trials
        self._changed = changed
        self._paced = Paced(self._look, "check the output")
        self._start: Start | None = None
        self._later: asyncio.TimerHandle | None = None
        #: Attempts that ended since the last check.
        self._ended: set[AttemptId] = set()
        self._is_done = False

    def enter(self, start: Start) -> None:
        """Starts with the running trials."""
        self._start = start
        self.note()

    def note(self, ended: Iterable[AttemptId] = ()) -> None:
        """Notes that trials were started, or that these have ended."""
        if self._is_done or self._start is None or not self._in_place():
            return
        self._ended.update(ended)
        self._paced.ask(self._start)

    async def close(self) -> None:
        """Returns when all ended trials were checked."""
        self._stop_timer()
        await self._paced.close()
        self._stop_timer()

    def _in_place(self) -> list[str]:
        return [name for name, one in self._services.items() if one.platform.capabilities.runs_in_place]

    async def _look(self) -> None:
        self._stop_timer()
        ended, self._ended = self._ended, set()
        names = self._in_place()
        running = await self._database.read(lambda c: jobs.running(c, names))
        found = await asyncio.to_thread(longest_output, self._trials, {*ended, *running}, self._spec.now.max_log_bytes)
        if found is not None:
            await self._warn(found)
        elif running and not self._paced.is_closing:
            self._later = asyncio.get_running_loop().call_later(_EVERY_S, self.note)

    def _stop_timer(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    async def _warn(self, found: LongOutput) -> None:
        self._is_done = True
        warning = ExperimentWarning(code=CODE, message=_sentence(found, self._spec.now.max_log_bytes))
        if await self._database.write(lambda c: trial_warnings.note(c, warning)):
            log.warning("%s", warning.message, extra={"action": "long_output"})
            self._changed()


def longest_output(trials: Path, attempts: Iterable[AttemptId], most: int) -> LongOutput | None:
    """The attempt with the longest logs, if they have more than `most` bytes. Blocks."""
    found: LongOutput | None = None
    for trial_id, number in attempts:
        folder = str(trials / attempt_directory(trial_id, number))
        sizes = {name: _size(folder, name) for name in protocol.LOG_FILES}
        total = sum(sizes.values())
        if total > most and (found is None or total > found.all_bytes):
            longest = max(sizes, key=sizes.__getitem__)
            found = LongOutput(trial_id, os.path.join(folder, longest), sizes[longest], total)
    return found


def _size(folder: str, name: str) -> int:
    try:
        return foreign_files.size(folder, name)
    except OSError:
        return 0


def _sentence(found: LongOutput, most: int) -> str:
    return (
        f"trial {found.trial_id} wrote {size(found.bytes)} to {found.file}: more than maxLogSize ({size(most)});"
        " logs on this machine are not truncated; reduce the output, for example progress bars, before the disk is full"
    )
