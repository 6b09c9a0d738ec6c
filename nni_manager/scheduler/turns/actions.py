"""The actions of a plan, carried out: jobs are made, submitted and cancelled, and the tuner is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable, SubmitRejected
from nni_manager.domain.experiment import PlatformSpec
from nni_manager.domain.job import JobHandle, JobReport, JobSpec, JobState
from nni_manager.domain.reason import Reason
from nni_manager.platform_kit.contract import NoRoom
from nni_manager.platform_kit.payload import job_spec
from nni_manager.scheduler.live_spec import LiveSpec
from nni_manager.scheduler.planning import decisions as d
from nni_manager.scheduler.planning.decisions import Submit
from nni_manager.scheduler.turns.heartbeats import Heartbeats
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.training_service import TrainingService
from nni_manager.scheduler.turns.trial_listener import TrialListener, runner_environment


class JobFactory:
    """`nonce`: the experiment's own, see `JobSpec.nonce`."""

    def __init__(
        self, *, experiment_id: str, spec: LiveSpec, folder_of_trials: Path, caller_environment: Mapping[str, str],
        trial_listener: TrialListener, nonce: str,
    ) -> None:  # fmt: skip
        self._experiment_id = experiment_id
        self._spec = spec
        self._folder_of_trials = folder_of_trials
        self._caller_environment = caller_environment
        self._runner_listener = trial_listener
        self._nonce = nonce

    async def make(self, call: Submit, service: PlatformSpec, *, has_runner: bool) -> JobSpec:
        """`service`: where it is to run; `has_runner`: a trial runner reports for it, and must be told where.

        Raises PlatformUnavailable while the trial listener cannot be opened.
        """
        if has_runner:
            await self._runner_listener.open(self._experiment_id)
        return job_spec(
            self._spec.now, service=service, experiment_id=self._experiment_id,
            folder_of_trials=self._folder_of_trials, caller_environment=self._caller_environment,
            job_name=call.job_name, trial_id=call.trial_id, attempt=call.attempt, sequence_id=call.sequence_id,
            record=call.record, stored=call.stored, is_repeat=call.is_repeat, intended_ms=call.intended_ms,
            nonce=self._nonce, runner_environment=self._runner_environment(call, service) if has_runner else {},
        )  # fmt: skip

    def _runner_environment(self, call: Submit, service: PlatformSpec) -> dict[str, str]:
        return runner_environment(
            self._runner_listener, manager_ip=self._manager_ip(service), experiment_id=self._experiment_id,
            trial_id=call.trial_id, attempt=call.attempt, job_name=call.job_name,
        )  # fmt: skip

    def _manager_ip(self, service: PlatformSpec) -> str:
        own = service.settings.get("nniManagerIp")
        return own if isinstance(own, str) else self._spec.now.manager_ip


log = logging.getLogger(__name__)

#: Seconds after which a stop that could not be sent is sent again.
_CANCEL_AGAIN_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class Actions:
    """The hands of one experiment. `want`: asks the tuner for so many proposals."""

    def __init__(
        self, *, services: Mapping[str, TrainingService], inbox: Inbox, jobs: JobFactory, spec: LiveSpec,
        heartbeats: Heartbeats, want: Callable[[int], None], clock: Clock,
    ) -> None:  # fmt: skip
        self._services = services
        self._inbox = inbox
        self._jobs = jobs
        self._spec = spec
        self._heartbeats = heartbeats
        self._clock = clock
        self._group: asyncio.TaskGroup
        #: Jobs whose submission is under way.
        self.submitting: set[str] = set()
        #: The experiment is to be stopped.
        self.is_stopping = False
        #: Service → jobs to be stopped with the next call.
        self._to_cancel: dict[str, list[JobHandle]] = {}
        #: Service → calls in a row that could not tell it to stop jobs.
        self._unheard: dict[str, int] = {}
        self._performers: dict[type, Callable[[Any], None]] = {
            d.Submit: self._submit,
            d.Cancel: self._cancel,
            d.Forget: self._forget,
            d.AskTuner: lambda call: want(call.count),
        }

    def enter(self, group: asyncio.TaskGroup) -> None:
        """Tasks made from now on belong to `group`; what an earlier one had under way is over."""
        self._group = group
        self.submitting.clear()
        self._to_cancel.clear()

    def perform(self, calls: Sequence[d.Call]) -> None:
        """Starts them and goes on."""
        for call in calls:
            self._performers[type(call)](call)
        for service, handles in self._to_cancel.items():
            self._start(self._do_cancel(self._services[service], handles), f"cancel {len(handles)} jobs of {service}")
        self._to_cancel = {}

    @property
    def cancelled(self) -> frozenset[str]:
        """Jobs that were sent a stop, each on its service's connection of now."""
        return frozenset().union(*(service.cancelled for service in self._services.values()))

    # Submit

    def _submit(self, call: d.Submit) -> None:
        self.submitting.add(call.job_name)
        self._start(self._do_submit(call), f"submit {call.job_name}")

    async def _do_submit(self, call: d.Submit) -> None:
        service = self._services[call.service]
        try:
            job = await self._jobs.make(call, service.spec, has_runner=service.platform.capabilities.has_runner)
            answer = await service.submit(job)
        except SubmitRejected as error:
            self._fail(call.job_name, JobState.FAILED, str(error), Reason.SUBMIT_REJECTED)
        except PlatformUnavailable as error:
            service.note_refusal(error)
            if error.refused:
                self._inbox.refused(call.job_name)
        except BadCredentials as error:
            service.note_refusal(error)
            if not call.is_repeat:  # what an earlier call has done is not known
                self._inbox.refused(call.job_name)
        except Exception as error:
            service.note_bug(error)
            if self.is_stopping:  # nobody will put it right before the experiment is closed
                self._fail(call.job_name, JobState.LOST, f"its platform's adapter failed: {error!r}")
        else:
            if isinstance(answer, NoRoom):
                self._inbox.refused(call.job_name)
            else:
                self._inbox.accepted(answer)
        finally:
            self.submitting.discard(call.job_name)
            self._inbox.wake_soon()

    def _fail(self, job_name: str, state: JobState, message: str, cause: Reason | None = None) -> None:
        report = JobReport(state=state, cause=cause, message=message, ended_ms=self._clock())
        self._inbox.report({job_name: report})

    # Cancel

    def _cancel(self, call: d.Cancel) -> None:
        self._services[call.service].cancelled.add(call.handle.job_name)
        self._to_cancel.setdefault(call.service, []).append(call.handle)

    async def _do_cancel(self, service: TrainingService, handles: Sequence[JobHandle]) -> None:
        try:
            await service.cancel(handles, self._spec.now.grace_period_s)
            self._unheard.pop(service.name, None)
        except (PlatformUnavailable, BadCredentials) as error:
            names = ", ".join(handle.job_name for handle in handles)
            log.warning("job %s could not be told to stop, it will be told again: %s", names, error)
            # no task, for which the end of an experiment would wait
            asyncio.get_running_loop().call_later(self._pause_s(service.name), self._tell_again, service, handles)
        except Exception as error:
            service.note_bug(error)

    def _tell_again(self, service: TrainingService, handles: Sequence[JobHandle]) -> None:
        service.cancelled.difference_update(handle.job_name for handle in handles)
        self._inbox.wake()

    def _pause_s(self, service: str) -> float:
        """Longer each time. A service that is back is told at once: it clears what it was sent."""
        times = self._unheard[service] = self._unheard.get(service, 0) + 1
        return _CANCEL_AGAIN_S[min(times, len(_CANCEL_AGAIN_S)) - 1]

    def _forget(self, call: d.Forget) -> None:
        service = self._services[call.service]
        service.cancelled.discard(call.handle.job_name)
        self._heartbeats.drop(call.handle.job_name)
        service.forgetting.add([call])

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._group.create_task(work, name=name)
