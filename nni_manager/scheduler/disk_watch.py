"""Warns of a disk that is nearly full while results can still be written: in the log, and on each experiment there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nni_manager.domain.experiment import ExperimentWarning
from nni_manager.platform_kit.tasks import ended
from nni_manager.scheduler.changes import DaemonWarnings
from nni_manager.scheduler.disk import Disk
from nni_manager.scheduler.experiments.commands import ExperimentCommands

log = logging.getLogger(__name__)

CODE = "DISK_LOW"
#: Seconds between two checks; no event reports a disk that fills.
_EVERY_S = 60.0


class DiskWatch:
    """The warnings of one daemon."""

    def __init__(self, commands: ExperimentCommands, warnings: DaemonWarnings) -> None:
        self._commands = commands
        self._disk: Disk = commands.disk
        self._warnings = warnings
        self._is_low = False

    async def look(self) -> None:
        """Sets and clears the warnings; a folder without an answer changes nothing."""
        folders = {experiment.folder.path.parent for experiment in self._commands.open_experiments}
        asked = (None, *folders)
        known = dict(zip(asked, await asyncio.gather(*map(self._sentence, asked)), strict=True))
        # those that are open now: an experiment that closed meanwhile gets no warning
        for experiment in self._commands.open_experiments:
            self._set(experiment.id, known.get(experiment.folder.path.parent))
        self._tell(known[None])

    def _set(self, experiment_id: str, sentence: str | None) -> None:
        if sentence:
            self._warnings.set(experiment_id, ExperimentWarning(code=CODE, message=sentence))
        elif sentence is not None:
            self._warnings.clear(experiment_id, CODE)

    def _tell(self, sentence: str | None) -> None:
        """Logs when the data directory's disk becomes full, and when it no longer is."""
        if sentence is None:
            return
        if sentence and not self._is_low:
            log.warning("%s", sentence, extra={"action": "disk"})
        elif self._is_low and not sentence:
            log.info("the disk of the data directory has free space again", extra={"action": "disk"})
        self._is_low = bool(sentence)

    async def _sentence(self, folder: Path | None) -> str | None:
        """None: unknown."""
        try:
            return (await self._disk.room(folder)).sentence
        except OSError as error:
            log.debug("the disk of %s cannot be checked: %s", folder or "the data directory", error)
            return None


@asynccontextmanager
async def watched(commands: ExperimentCommands, warnings: DaemonWarnings) -> AsyncIterator[None]:
    """A context in which the disks are checked."""
    task = asyncio.create_task(_look_again_and_again(DiskWatch(commands, warnings)), name="disk watch")
    try:
        yield
    finally:
        await ended(task)


async def _look_again_and_again(watch: DiskWatch) -> None:
    while True:
        try:
            await watch.look()
        except Exception:
            log.exception("the disks could not be checked")
        await asyncio.sleep(_EVERY_S)
