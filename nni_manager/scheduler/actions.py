"""Carries out what a plan decided: submit, cancel, forget, ask the tuner. What comes of it goes into the inbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobHandle, JobReport, JobState
from nni_manager.domain.trial import Reason
from nni_manager.platform_kit.contract import NoRoom
from nni_manager.scheduler import decisions as d
from nni_manager.scheduler.beats import Beats
from nni_manager.scheduler.inbox import Inbox
from nni_manager.scheduler.job_factory import JobFactory
from nni_manager.scheduler.live_spec import LiveSpec
from nni_manager.scheduler.training_service import TrainingService

log = logging.getLogger(__name__)

#: Seconds after which a stop that could not be sent is sent again.
_CANCEL_AGAIN_S = 1.0


class Actions:
    """The hands of one experiment. `want`: asks the tuner for so many proposals."""

    def __init__(
        self, *, services: Mapping[str, TrainingService], inbox: Inbox, jobs: JobFactory, spec: LiveSpec, beats: Beats,
        want: Callable[[int], None], clock: Clock,
    ) -> None:  # fmt: skip
        self._services = services
        self._inbox = inbox
        self._jobs = jobs
        self._spec = spec
        self._beats = beats
        self._clock = clock
        self._group: asyncio.TaskGroup
        #: Jobs whose submission is under way.
        self.submitting: set[str] = set()
        #: The experiment is to be stopped.
        self.is_stopping = False
        #: Service → jobs to be stopped with the next call.
        self._to_cancel: dict[str, list[JobHandle]] = {}
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
        except BadCredentials:
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

    def _fail(self, job_name: str, state: JobState, message: str, reason: str = "") -> None:
        report = JobReport(state=state, reason=reason, message=message, ended_ms=self._clock())
        self._inbox.report({job_name: report})

    # Cancel

    def _cancel(self, call: d.Cancel) -> None:
        self._services[call.service].cancelled.add(call.handle.job_name)
        self._to_cancel.setdefault(call.service, []).append(call.handle)

    async def _do_cancel(self, service: TrainingService, handles: Sequence[JobHandle]) -> None:
        try:
            await service.cancel(handles, self._spec.now.grace_period_s)
        except (PlatformUnavailable, BadCredentials) as error:
            names = ", ".join(handle.job_name for handle in handles)
            log.warning("job %s could not be told to stop, it will be told again: %s", names, error)
            await asyncio.sleep(_CANCEL_AGAIN_S)
            service.cancelled.difference_update(handle.job_name for handle in handles)
            self._inbox.wake()
        except Exception as error:
            service.note_bug(error)

    def _forget(self, call: d.Forget) -> None:
        service = self._services[call.service]
        service.cancelled.discard(call.handle.job_name)
        self._beats.drop(call.handle.job_name)
        service.forgetting.add([call])

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._group.create_task(work, name=name)
