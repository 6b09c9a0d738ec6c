"""The processes of tuner and assessor that an experiment has at the moment, if any, watched while they are asked.

`host` is what it starts and ends, one process or two; this says so when one keeps its caller waiting. What to
ask, and what follows from a death, is `feed`'s business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nni_manager.domain.errors import TunerDied
from nni_manager.domain.experiment import ExperimentSpec, Hold, HoldCode
from nni_manager.scheduler.experiment_log import write_text
from nni_manager.scheduler.tuning import orphans
from nni_manager.scheduler.tuning.host import HostPlace, TunerHosts

log = logging.getLogger(__name__)


class WatchedTuner:
    """`changed` is called when a silence begins, is explained or is over."""

    def __init__(self, place: HostPlace, *, patience_s: float, changed: Callable[[], None]) -> None:
        self._place = place
        self._patience_s = patience_s
        self._changed = changed
        self._hosts: TunerHosts | None = None
        self._explaining: asyncio.Task[None] | None = None
        #: The present call takes too long; ends by itself.
        self.silence: Hold | None = None

    async def end_orphans(self) -> None:
        """Ends what a tuner left whose daemon was killed."""
        log_folder = self._place.log_folder
        if (log_folder / "dispatcher.log").exists():  # there was one
            count = await asyncio.to_thread(orphans.end_orphans, orphans.mark_prefix(log_folder))
            if count:
                log.warning("%d processes that an earlier tuner had left were ended", count)

    @property
    def is_started(self) -> bool:
        return self._hosts is not None

    async def start(self, spec: ExperimentSpec) -> None:
        """Starts the processes. Raises TunerDied."""
        self._hosts = await TunerHosts.start(self._place, spec)

    async def call(self, verb: str, **arguments: Any) -> Any:
        """Asks and waits, however long. Raises TunerRaised or TunerDied."""
        if self._hosts is None:  # a person resumed while the store was asked
            raise TunerDied("the tuner was started afresh")
        try:
            return await self._hosts.call(
                verb, patience_s=self._patience_s, on_silence=lambda: self._note_silence(verb), **arguments
            )
        finally:
            if self.silence is not None:
                self.silence = None
                self._changed()

    async def end(self, *, kill: bool = False) -> None:
        """Ends the processes if there are any: at once when it is silent, or on `kill`. Idempotent."""
        hosts, self._hosts = self._hosts, None
        if hosts is not None:
            await hosts.close(kill=kill or self.silence is not None)
        self.silence = None

    def _note_silence(self, verb: str) -> None:
        sentence = f"the tuner has not answered `{verb}` for {self._patience_s:.0f} s; resume starts it afresh"
        self.silence = Hold(code=HoldCode.TUNER_SILENT, sentence=sentence)
        self._changed()
        self._explaining = asyncio.create_task(self._add_stack(self.silence), name="stack of a silent tuner")

    async def _add_stack(self, silence: Hold) -> None:
        hosts = self._hosts
        details = await hosts.stacks() if hosts is not None else ""
        if self.silence is silence:
            self.silence = replace(silence, details=details)
            log.warning("%s", silence.sentence)
            write_text(log, logging.WARNING, "the tuner", details, "tuner")
            self._changed()
