"""Notices changes of the code of trials that run in place, while an experiment runs.

Trials write configuration files, too. So such a file counts as changed once a trial began after the change and ended
without writing it. A file that is written again before that is not compared any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from nni_manager.domain.clock import Clock
from nni_manager.domain.experiment import ExperimentWarning, LiveSpec
from nni_manager.scheduler.turns import code_files
from nni_manager.scheduler.turns.code_files import Change, Look, Place
from nni_manager.scheduler.turns.paced import Paced, Start
from nni_manager.scheduler.turns.training_service import TrainingService
from nni_manager.store.database import Database
from nni_manager.store.experiment import code_states, trial_warnings
from nni_manager.store.experiment.code_states import MOST_STATES, CodeState, Files

log = logging.getLogger(__name__)

#: Number of checks to wait for files that may still be written.
_MOST_WAITS = 5


class CodeWatch:
    """The code of one experiment. It is checked after jobs were submitted, at most once a second, in a thread.

    `services`: by name, shared with the loop; `leave_out`: the folder of experiments; `changed`: called after a change.
    """

    def __init__(
        self,
        *,
        services: Mapping[str, TrainingService],
        database: Database,
        spec: LiveSpec,
        leave_out: str,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self._services = services
        self._database = database
        self._spec = spec
        self._leave_out = leave_out
        self._clock = clock
        self._changed = changed
        self._paced = Paced(self._look, "check the code")
        self._start: Start | None = None
        #: Service → last known state of its code, and time of the check, in milliseconds since the epoch.
        self._known: dict[str, tuple[CodeState, int]] = {}
        #: Service → number of consecutive checks that waited for files which may still be written.
        self._waits: dict[str, int] = {}
        #: Service → files that trials may have written, with the time of the last write in nanoseconds.
        self._open: dict[str, Mapping[str, int]] = {}
        #: Services whose code changes too often.
        self._given_up: set[str] = set()
        #: Whether some state may have no first trial yet.
        self._lacks_trial = True

    def enter(self, start: Start) -> None:
        """Checks the code before trials run."""
        self._start = start
        self.note()

    def note(self) -> None:
        """Notes that a job was submitted, which runs the present code, or that a trial has ended."""
        if self._start is not None and any(self._in_place()):
            self._paced.ask(self._start)

    async def close(self) -> None:
        """Returns when all submitted jobs are covered."""
        await self._paced.close()

    def _in_place(self) -> list[TrainingService]:
        return [
            service
            for service in self._services.values()
            if service.platform.capabilities.runs_in_place and service.name not in self._given_up
        ]

    async def _look(self) -> None:
        for service in self._in_place():
            await self._look_at(service.name, self._place(service))
        if self._lacks_trial:
            self._lacks_trial = await self._database.write(code_states.set_first_trials)
            self._changed()

    def _place(self, service: TrainingService) -> Place:
        own: Mapping[str, Any] = service.spec.settings
        spec = self._spec.now
        return Place(
            directory=str(own.get("trialCodeDirectory", spec.trial_code_directory)),
            command=str(own.get("trialCommand", spec.trial_command)),
            leave_out=self._leave_out,
        )

    async def _look_at(self, name: str, place: Place) -> None:
        begun_ms = self._clock()
        state, seen_ms = self._known.get(name, (None, 0))
        state = state or await self._database.read(lambda c: code_states.latest(c, name))
        if state is None:
            files = await asyncio.to_thread(code_files.first_look, place)
            await self._record(name, files, begun_ms, begun_ms)
            return
        look = await asyncio.to_thread(code_files.look_again, place.directory, state.files)
        state = await self._without_written(name, state, look)
        changed = {path: one for path, one in look.changed.items() if path in state.files}
        open_ = {path for path in changed if await self._may_be_of_a_trial(name, path, changed[path])}
        self._open[name] = {path: changed[path].mtime_ns for path in open_}
        counted = [path for path in changed if path not in open_]
        files = {path: state.files[path] if path in open_ else look.files[path] for path in state.files}
        if not counted:
            self._waits.pop(name, None)
            self._known[name] = CodeState(state.number, files), begun_ms
        elif not self._waits_for(name, any(changed[path].is_fresh for path in counted)):
            at_ms = max(changed[path].at_ms for path in counted)
            since_ms = min(max(at_ms, seen_ms + 1), begun_ms) if at_ms else begun_ms
            new = await asyncio.to_thread(code_files.first_look, place)
            await self._record(name, {**new, **files}, since_ms, begun_ms, tuple(counted))

    def _waits_for(self, name: str, is_fresh: bool) -> bool:
        """Whether to wait for files that may still be written; the next check comes without a further job."""
        count = self._waits.get(name, 0)
        if not is_fresh or count >= _MOST_WAITS or self._paced.is_closing:
            self._waits.pop(name, None)
            return False
        self._waits[name] = count + 1
        self.note()
        return True

    async def _may_be_of_a_trial(self, name: str, path: str, change: Change) -> bool:
        """Whether trials may have written the file: no trial began after that, and ended."""
        if not code_files.may_be_written_by_trials(path):
            return False
        return not await self._database.read(lambda c: code_states.has_run_since(c, name, change.at_ms))

    async def _without_written(self, name: str, state: CodeState, look: Look) -> CodeState:
        """The state without files that were written again before they counted, as trials do."""
        before = self._open.get(name, {})
        written = {path for path in before if path in look.changed and look.changed[path].mtime_ns != before[path]}
        if not written:
            return state
        kept = CodeState(state.number, {path: file for path, file in state.files.items() if path not in written})
        await self._database.write(lambda c: code_states.drop_files(c, name, written))
        return kept

    async def _record(
        self, name: str, files: Files, since_ms: int, begun_ms: int, changed: tuple[str, ...] = ()
    ) -> None:
        state = await self._database.write(lambda c: code_states.record(c, name, files, since_ms, changed))
        if state is None:
            message = f"the code changed more than {MOST_STATES} times; its states are not numbered any more"
            self._given_up.add(name)
            await self._database.write(
                lambda c: trial_warnings.note(c, ExperimentWarning(code="CODE_CHANGES_OFTEN", message=message))
            )
            return
        self._known[name] = CodeState(state.number, files), begun_ms
        if changed:
            self._lacks_trial = True
            words = "the code of %s changed (%s): trials that start from now on run code state %d"
            log.warning(words, name, code_states.named(changed), state.number, extra={"action": "code_changed"})
            self._changed()
