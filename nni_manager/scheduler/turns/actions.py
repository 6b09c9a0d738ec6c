"""Carries out the calls of a plan: builds, submits and cancels jobs, removes checkpoints, and asks the tuner."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nni_manager.domain.attempt import Attempt, Observation
from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import BadCredentials, NniManagerError, PlatformUnavailable, SubmitRejected
from nni_manager.domain.experiment import LiveSpec, NeedlessCheckpoint, PlatformSpec
from nni_manager.domain.ids import attempt_directory
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.domain.reason import Reason
from nni_manager.platform_kit.contract import NoRoom
from nni_manager.platform_kit.payload import copy_from
from nni_manager.scheduler.planning import decisions as d
from nni_manager.scheduler.planning.decisions import Submit
from nni_manager.scheduler.turns.code_watch import CodeWatch
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.output_watch import OutputWatch
from nni_manager.scheduler.turns.training_service import TrainingService
from nni_manager.scheduler.turns.trial_listener import Heartbeats, TrialListener, runner_environment
from trial_runner import protocol
from trial_runner.wire.backoff import Backoff


class JobFactory:
    """Builds job specs. `nonce`, `storage_key`: the experiment's, see `JobSpec`."""

    def __init__(
        self,
        *,
        experiment_id: str,
        spec: LiveSpec,
        folder_of_trials: Path,
        caller_environment: Mapping[str, str],
        trial_listener: TrialListener,
        nonce: str,
        storage_key: str = "",
    ) -> None:
        self._experiment_id = experiment_id
        self._spec = spec
        self._folder_of_trials = folder_of_trials
        self._caller_environment = caller_environment
        self._runner_listener = trial_listener
        self._nonce, self._storage_key = nonce, storage_key

    async def make(self, call: Submit, service: PlatformSpec, *, has_runner: bool) -> JobSpec:
        """`service`: where the job will run; `has_runner`: its trial runner needs the address of the trial listener.

        Raises PlatformUnavailable while the trial listener cannot be opened.
        """
        if has_runner:
            await self._runner_listener.open(self._experiment_id)
        attempt, spec, own = call.attempt, self._spec.now, service.settings
        gpus = own.get("trialGpuNumber", spec.trial_gpu_number)
        prelude = copy_from(call.continues) if call.continues else ""
        return JobSpec(
            name=attempt.job_name,
            experiment_id=self._experiment_id,
            trial_id=attempt.trial_id,
            attempt=attempt.number,
            sequence_id=call.sequence_id,
            command=prelude + str(own.get("trialCommand", spec.trial_command)),
            prelude=prelude,
            continues=call.continues,
            parameter_record=call.record,
            protocol_environment={
                protocol.ENV_EXPERIMENT_ID: self._experiment_id,
                protocol.ENV_TRIAL_ID: attempt.trial_id,
                protocol.ENV_SEQUENCE_ID: str(call.sequence_id),
            },
            caller_environment=self._caller_environment,
            code_directory=str(own.get("trialCodeDirectory", spec.trial_code_directory)),
            attempt_directory=str(self._folder_of_trials / attempt_directory(attempt.trial_id, attempt.number)),
            gpu_number=gpus if isinstance(gpus, int) else None,
            grace_period_s=spec.grace_period_s,
            stored=call.stored,
            is_repeat=call.is_repeat,
            intended_ms=attempt.intended_ms,
            nonce=self._nonce,
            storage_key=self._storage_key,
            runner_environment=self._for_runner(attempt, service) if has_runner else {},
        )

    def _for_runner(self, attempt: Attempt, service: PlatformSpec) -> dict[str, str]:
        own = service.settings.get("nniManagerIp")
        ip = own if isinstance(own, str) else self._spec.now.manager_ip
        return runner_environment(self._runner_listener, attempt, manager_ip=ip, experiment_id=self._experiment_id)


log = logging.getLogger(__name__)

#: Calls that are started at a time: their first steps follow each other.
_SLICE = 100
#: Seconds before an undelivered stop is sent again; the last value repeats.
_CANCEL_WAITS_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class Actions:
    """Carries out calls for one experiment. `want`: asks the tuner for a number of proposals."""

    def __init__(
        self,
        *,
        services: Mapping[str, TrainingService],
        inbox: Inbox,
        jobs: JobFactory,
        spec: LiveSpec,
        heartbeats: Heartbeats,
        want: Callable[[int], None],
        clock: Clock,
        code: CodeWatch,
        output: OutputWatch,
    ) -> None:
        self._services = services
        self._inbox = inbox
        self._jobs = jobs
        self._spec = spec
        self._heartbeats = heartbeats
        self._clock = clock
        self._code, self._output = code, output
        self._group: asyncio.TaskGroup
        #: Names of jobs that are being submitted.
        self.submitting: set[str] = set()
        self.removal = CheckpointRemoval(services, inbox)
        #: The experiment is stopping.
        self.is_stopping = False
        #: Service → jobs to cancel in one call.
        self._to_cancel: dict[str, list[JobHandle]] = {}
        #: Service → waits before cancels are sent again.
        self._unheard: dict[str, Backoff] = {}
        self._performers: dict[type, Callable[[Any], None]] = {
            d.Submit: self._submit,
            d.Cancel: self._cancel,
            d.Forget: self._forget,
            d.RemoveCheckpoints: self._remove_checkpoints,
            d.AskTuner: lambda call: want(call.count),
        }

    def enter(self, group: asyncio.TaskGroup) -> None:
        """Starts tasks in `group` from now on, and forgets those of an earlier group."""
        self._group = group
        self.submitting.clear()
        self.removal.forget()
        self._to_cancel.clear()
        self._code.enter(self._start)
        self._output.enter(self._start)

    def note_ends(self, attempts: Collection[tuple[str, int]]) -> None:
        """Notes that these attempts of trials have ended."""
        if attempts:
            self._code.note()
            self._output.note(attempts)

    async def close(self) -> None:
        """Returns once the submitted jobs' code and the ended jobs' output are known."""
        await self._code.close()
        await self._output.close()

    async def perform(self, calls: Sequence[d.Call]) -> None:
        """Starts the calls without waiting for them. Other work goes on between many calls."""
        for place, call in enumerate(calls, 1):
            self._performers[type(call)](call)
            if place % _SLICE == 0:
                await asyncio.sleep(0)
        for service, handles in self._to_cancel.items():
            self._start(self._do_cancel(self._services[service], handles), f"cancel {len(handles)} jobs of {service}")
        self._to_cancel = {}

    @property
    def cancelled(self) -> frozenset[str]:
        """Names of jobs cancelled over the present connection of their service."""
        return frozenset().union(*(service.cancelled for service in self._services.values()))

    # Submit

    def _submit(self, call: d.Submit) -> None:
        self.submitting.add(call.attempt.job_name)
        self._start(self._do_submit(call), f"submit {call.attempt.job_name}")

    async def _do_submit(self, call: d.Submit) -> None:
        service, name = self._services[call.attempt.service], call.attempt.job_name
        try:
            job = await self._jobs.make(call, service.spec, has_runner=service.platform.capabilities.has_runner)
            answer = await service.submit(job)
        except SubmitRejected as error:
            self._fail(name, JobState.FAILED, str(error), Reason.SUBMIT_REJECTED)
        except PlatformUnavailable as error:
            service.note_refusal(error)
            if error.refused and not call.is_repeat:  # the effect of an earlier call is unknown
                self._inbox.refused(name)
        except BadCredentials as error:
            service.note_refusal(error)
            if not call.is_repeat:
                self._inbox.refused(name)
        except Exception as error:
            service.note_bug(error)
            if self.is_stopping:  # no retry will follow before the experiment is closed
                self._fail(name, JobState.LOST, f"its platform's adapter failed: {error!r}")
        else:
            if isinstance(answer, NoRoom):
                self._inbox.refused(name)
            else:
                self._inbox.accepted(answer)
                self._code.note()
                self._output.note()
        finally:
            self.submitting.discard(name)
            self._inbox.wake_late()  # failures wake the loop on their own

    def _fail(self, job_name: str, state: JobState, message: str, cause: Reason | None = None) -> None:
        report = Observation(state=state, cause=cause, message=message, ended_ms=self._clock())
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
            log.warning("the stop of job %s could not be delivered; retrying: %s", names, error)
            # not a task: the end of an experiment would wait for it
            wait_s = self._unheard.setdefault(service.name, Backoff(_CANCEL_WAITS_S)).next_wait()
            asyncio.get_running_loop().call_later(wait_s, self._tell_again, service, handles)
        except Exception as error:
            service.note_bug(error)

    def _tell_again(self, service: TrainingService, handles: Sequence[JobHandle]) -> None:
        service.cancelled.difference_update(handle.job_name for handle in handles)
        self._inbox.wake()

    def _forget(self, call: d.Forget) -> None:
        service = self._services[call.service]
        service.cancelled.discard(call.handle.job_name)
        self._heartbeats.drop(call.handle.job_name)
        service.forgetting.add([call])

    def _remove_checkpoints(self, call: d.RemoveCheckpoints) -> None:
        self.removal.begin(call.checkpoints)
        self._start(self.removal.run(call.checkpoints), "remove checkpoints")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._group.create_task(work, name=name)


#: Seconds before the removal of a checkpoint is retried; the last value repeats.
_RETRY_WAITS_S = (1.0, 5.0, 30.0, 120.0)


class CheckpointRemoval:
    """The removal of checkpoints of one experiment. `services`: by name, without removed ones."""

    def __init__(self, services: Mapping[str, TrainingService], inbox: Inbox) -> None:
        self._services = services
        self._inbox = inbox
        self._trials: set[str] = set()
        #: Trial → waits before its checkpoint is tried again.
        self._failed: dict[str, Backoff] = {}

    @property
    def at_work(self) -> frozenset[str]:
        """Trials that the plan need not name again now."""
        return frozenset(self._trials)

    def forget(self) -> None:
        """Forgets the work of an earlier loop."""
        self._trials.clear()

    def begin(self, checkpoints: Sequence[NeedlessCheckpoint]) -> None:
        self._trials.update(one.trial_id for one in checkpoints)

    async def run(self, checkpoints: Sequence[NeedlessCheckpoint]) -> None:
        """Removes them, and reports removed ones to the inbox; each of the others is planned again after a while."""
        stays: dict[str, str] = {}
        for service, trials in self._by_service(checkpoints).items():
            answer = await self._ask(service, list(trials))
            stays.update({trials[handle]: why for handle, why in answer.items()})
        removed = [one.trial_id for one in checkpoints if one.trial_id not in stays]
        self._trials.difference_update(removed)
        for trial_id in removed:
            self._failed.pop(trial_id, None)
        if removed:
            self._inbox.removed_checkpoints(removed)
        if stays:
            self._wait(stays)

    async def _ask(self, service: TrainingService, handles: Sequence[JobHandle]) -> Mapping[JobHandle, str]:
        """Job → why the checkpoint of its trial remains."""
        try:
            return await service.call("remove_checkpoints", partial(service.platform.remove_checkpoints, handles))
        except NniManagerError as error:
            return dict.fromkeys(handles, str(error))
        except Exception as error:
            service.note_bug(error)
            return dict.fromkeys(handles, f"the platform's adapter failed: {error!r}")

    def _wait(self, stays: Mapping[str, str]) -> None:
        """Schedules retries. `stays`: trial → why its checkpoint remains."""
        fresh = [trial_id for trial_id in stays if trial_id not in self._failed]
        if fresh:
            log.warning("checkpoints of %d trials could not be removed yet: %s", len(fresh), stays[fresh[0]])
        loop = asyncio.get_running_loop()
        for trial_id in stays:
            wait_s = self._failed.setdefault(trial_id, Backoff(_RETRY_WAITS_S)).next_wait()
            loop.call_later(wait_s, self._again, trial_id)

    def _again(self, trial_id: str) -> None:
        self._trials.discard(trial_id)
        self._inbox.wake()

    def _by_service(self, checkpoints: Sequence[NeedlessCheckpoint]) -> dict[TrainingService, dict[JobHandle, str]]:
        """Service → handle of a job there → its trial."""
        found: dict[TrainingService, dict[JobHandle, str]] = defaultdict(dict)
        for trial_id, (name, handle) in ((one.trial_id, job) for one in checkpoints for job in one.jobs):
            service = self._services.get(name)
            if service is not None and service.platform.capabilities.removes_checkpoints:
                found[service][handle] = trial_id
        return found
