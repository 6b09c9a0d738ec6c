"""Carries out what a plan decided: submit, cancel, forget, ask the tuner. Its results go into the next turn."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable, SubmitRejected
from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.domain.job import JobHandle, JobReport, JobSpec, JobState
from nni_manager.domain.trial import Reason
from nni_manager.platform_kit.contract import NoRoom
from nni_manager.platform_kit.payload import job_spec
from nni_manager.scheduler import decisions as d
from nni_manager.scheduler.forgetting import Forgetting
from nni_manager.scheduler.runner_door import RunnerDoor, runner_environment

if TYPE_CHECKING:
    from nni_manager.scheduler.experiment_loop import ExperimentLoop

log = logging.getLogger(__name__)

#: Waits before a platform that takes no jobs is tried again, in milliseconds; the last one repeats.
_RETRY_WAITS_MS = (200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)


class Actions:
    """The hands of one experiment loop."""

    def __init__(
        self, *, folder_of_trials: Path, caller_environment: Mapping[str, str], runner_door: RunnerDoor, clock: Clock
    ) -> None:
        self.folder_of_trials = folder_of_trials
        self._caller_environment = caller_environment
        self._runner_door = runner_door
        self._clock = clock
        self._loop: ExperimentLoop
        self._group: asyncio.TaskGroup
        self._handles: list[JobHandle] = []
        self._refused: list[str] = []
        self.forgetting: Forgetting
        self._refusals = 0
        #: Jobs whose submission is under way.
        self.submitting: set[str] = set()
        #: Jobs that were sent a stop on this connection.
        self.cancelled: set[str] = set()
        #: Why the platform takes no jobs at the moment.
        self.trouble: Hold | None = None
        self.retry_at_ms = 0
        self._performers: dict[type, Callable[[Any], None]] = {
            d.Submit: self._submit,
            d.Cancel: self._cancel,
            d.Forget: lambda call: self.forget([call]),
            d.AskTuner: lambda call: self._loop.feed.want(call.count),
        }

    def bind(self, loop: ExperimentLoop) -> None:
        self._loop = loop
        self.forgetting = Forgetting(loop.platform, loop.observer)

    def enter(self, group: asyncio.TaskGroup) -> None:
        """Tasks made from now on belong to `group`; what an earlier one had under way is over."""
        self._group = group
        self.forgetting.enter(group)
        self.submitting.clear()
        self.cancelled.clear()

    def perform(self, call: d.Call) -> None:
        """Starts it and goes on."""
        self._performers[type(call)](call)

    def take_news(self) -> tuple[tuple[JobHandle, ...], tuple[str, ...], tuple[str, ...]]:
        """(accepted jobs, refused jobs, forgotten jobs) since the last call."""
        news = tuple(self._handles), tuple(self._refused), self.forgetting.take_forgotten()
        self._handles, self._refused = [], []
        return news

    def forget(self, jobs: Sequence[d.Forget]) -> None:
        """The platform may remove what it keeps of these jobs."""
        for job in jobs:
            self.cancelled.discard(job.handle.job_name)
            self._loop.beats.drop(job.handle.job_name)
        self.forgetting.add(jobs)

    def forget_cancels(self) -> None:
        """The platform was connected again: stops sent before may not have arrived."""
        self.cancelled.clear()
        self._loop.wake()

    def set_trouble(self, trouble: Hold | None) -> None:
        if trouble is None:
            self._refusals = 0
        elif self.trouble is None:
            log.warning("the platform takes no jobs: %s", trouble.sentence)
        self.trouble = trouble

    def follow_clock(self, step_ms: int) -> None:
        """The wall clock was set by so much."""
        self.retry_at_ms += step_ms

    async def finish(self) -> None:
        """Waits, for a moment, until the platform knows what it may forget."""
        if await self.forgetting.finish():
            await self._loop.turn()

    # Calls

    def _submit(self, call: d.Submit) -> None:
        self.submitting.add(call.job_name)
        self._start(self._do_submit(call), f"submit {call.job_name}")

    def _job_spec(self, call: d.Submit) -> JobSpec:
        return job_spec(
            self._loop.spec, experiment_id=self._loop.experiment_id, folder_of_trials=self.folder_of_trials,
            caller_environment=self._caller_environment, job_name=call.job_name, trial_id=call.trial_id,
            attempt=call.attempt, sequence_id=call.sequence_id, record=call.record, stored=call.stored,
            runner_environment=self._runner_environment(call),
        )  # fmt: skip

    def _runner_environment(self, call: d.Submit) -> dict[str, str]:
        if not self._loop.platform.capabilities.has_runner:
            return {}
        return runner_environment(
            self._runner_door, manager_ip=self._loop.spec.manager_ip, experiment_id=self._loop.experiment_id,
            trial_id=call.trial_id, attempt=call.attempt, job_name=call.job_name,
        )  # fmt: skip

    async def _do_submit(self, call: d.Submit) -> None:
        try:
            if self._loop.platform.capabilities.has_runner:
                await self._runner_door.open(self._loop.experiment_id)  # its runner must be told where it is
            handle = await self._loop.platform.submit(self._job_spec(call))
            if isinstance(handle, NoRoom):
                raise PlatformUnavailable(handle.why.sentence, refused=True)
        except SubmitRejected as error:
            report = JobReport(
                state=JobState.FAILED, reason=Reason.SUBMIT_REJECTED, message=str(error), ended_ms=self._clock()
            )
            self._loop.intake.take_reports({call.job_name: report})
        except PlatformUnavailable as error:
            self._note_refusal(call.job_name, error)
        except BadCredentials as error:
            self._refused.append(call.job_name)
            self._loop.intake.put_on_hold(Hold(code=HoldCode.BAD_CREDENTIALS, sentence=str(error)))
        except Exception as error:
            self._note_bug(error)
            if self._loop.is_stopping:  # nobody will put it right before the experiment is closed
                report = JobReport(state=JobState.LOST, message=f"its platform's adapter failed: {error!r}")
                self._loop.intake.take_reports({call.job_name: report})
        else:
            self._accept(handle)
            self.submitting.discard(call.job_name)
            return self._loop.bell.ring_soon()
        self.submitting.discard(call.job_name)
        self._loop.wake()

    def _accept(self, handle: JobHandle) -> None:
        self._handles.append(handle)
        self.set_trouble(None)
        self._loop.observer.add(handle)

    def _note_refusal(self, job_name: str, error: PlatformUnavailable) -> None:
        if error.refused:
            self._refused.append(job_name)
        wait = _RETRY_WAITS_MS[min(self._refusals, len(_RETRY_WAITS_MS) - 1)]
        if self._clock() >= self.retry_at_ms:
            self._refusals += 1
            self.retry_at_ms = self._clock() + wait
        self.set_trouble(Hold(code=HoldCode.PLATFORM_UNAVAILABLE, sentence=str(error)))

    def _note_bug(self, error: Exception) -> None:
        log.exception("the adapter failed")
        sentence = f"the platform's adapter failed: {error!r}; resume tries again"
        self._loop.intake.put_on_hold(
            Hold(code=HoldCode.INTERNAL, sentence=sentence, details="".join(traceback.format_exception(error)))
        )

    def _cancel(self, call: d.Cancel) -> None:
        self.cancelled.add(call.handle.job_name)
        self._start(self._do_cancel(call.handle), f"cancel {call.handle.job_name}")

    async def _do_cancel(self, handle: JobHandle) -> None:
        try:
            await self._loop.platform.cancel([handle], self._loop.spec.grace_period_s)
        except (PlatformUnavailable, BadCredentials) as error:
            log.warning("job %s could not be told to stop, it will be told again: %s", handle.job_name, error)
            await asyncio.sleep(1)
            self.cancelled.discard(handle.job_name)
            self._loop.wake()
        except Exception as error:
            self._note_bug(error)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._group.create_task(work, name=name)
