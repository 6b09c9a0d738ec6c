"""The processes of tuner and assessor, with a hold while a call takes too long or a shortage prevents their start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nni_manager.domain.errors import TunerDied, TunerError, TunerNotStarted
from nni_manager.domain.experiment import ExperimentSpec, Hold, HoldCode
from nni_manager.scheduler.experiment_log import write_text
from nni_manager.scheduler.tuning.host import HostPlace, TunerHosts
from nni_manager.scheduler.tuning.orphans import end_orphans, mark_prefix
from trial_runner.wire.backoff import Backoff
from trial_runner.wire.shortage import WAITS_S

log = logging.getLogger(__name__)


class WatchedTuner:
    """`changed`: called when a silence begins, has a stack, or ends; `on_news`: as in `TunerHost`."""

    def __init__(
        self, place: HostPlace, *, patience_s: float, changed: Callable[[], None], on_news: Callable[[], object]
    ) -> None:
        self._place = place
        self._patience_s = patience_s
        self._changed = changed
        self._on_news = on_news
        self._hosts: TunerHosts | None = None
        self._explaining: asyncio.Task[None] | None = None
        #: The hold while the current call takes too long; None: it does not.
        self.silence: Hold | None = None

    async def end_orphans(self) -> None:
        """Ends processes of a tuner that a killed daemon left."""
        log_folder = self._place.log_folder
        if (log_folder / "dispatcher.log").exists():  # a tuner has run before
            count = await asyncio.to_thread(end_orphans, mark_prefix(log_folder))
            if count:
                log.warning("ended %d processes that an earlier tuner had left", count)

    @property
    def is_started(self) -> bool:
        return self._hosts is not None

    async def start(self, spec: ExperimentSpec) -> None:
        """Starts the processes; waits for a shortage to pass, with a hold. Raises TunerDied."""
        backoff = Backoff(WAITS_S)
        while True:
            try:
                self._hosts = await TunerHosts.start(self._place, spec, self._on_news)
                return  # the hold ends with the first answer
            except TunerNotStarted as error:
                self._note_shortage(error)
            await asyncio.sleep(backoff.next_wait())

    async def call(self, verb: str, **arguments: Any) -> Any:
        """Calls a verb and waits without a limit. Raises TunerRaised or TunerDied."""
        if self._hosts is None:  # a resume came while the history was read
            raise TunerDied("the tuner was restarted")
        answer = await self._hosts.call(
            verb, patience_s=self._patience_s, on_silence=lambda: self._note_silence(verb), **arguments
        )
        self._end_silence()  # after an error `end` or `outlast` follows
        return answer

    async def end(self, *, kill: bool = False) -> None:
        """Ends the processes if any: at once during a silence or with `kill`. Idempotent."""
        hosts, self._hosts = self._hosts, None
        if hosts is not None:
            await hosts.close(kill=kill or self.silence is not None)
        self.silence = None

    async def outlast(self, error: TunerError) -> None:
        """Ends processes that a shortage kept from their first answer, and waits until the next start, with a hold."""
        self._note_shortage(error)
        hosts, self._hosts = self._hosts, None
        if hosts is not None:
            await hosts.close(kill=True)
        await asyncio.sleep(WAITS_S[-1])

    def _note_shortage(self, error: TunerError) -> None:
        if self.silence is None:
            log.warning("%s; retrying until it succeeds", error)
        sentence = (
            f"{error}; retrying until it succeeds: end other processes, or raise the limits of processes"
            " (`ulimit -u`), open files (`ulimit -n`) or memory"
        )
        self.silence = Hold(code=HoldCode.TUNER_SILENT, sentence=sentence)
        self._changed()

    def _end_silence(self) -> None:
        if self.silence is not None:
            self.silence = None
            self._changed()

    def _note_silence(self, verb: str) -> None:
        sentence = f"the tuner has not answered `{verb}` for {self._patience_s:.0f} s; resume restarts it"
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
