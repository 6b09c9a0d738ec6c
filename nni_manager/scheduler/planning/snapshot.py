"""The snapshot of an experiment: its stored state, and the state of this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nni_manager.domain.attempt import Attempt
from nni_manager.domain.experiment import (
    ExperimentSpec,
    ExperimentStatus,
    Hold,
    HoldCode,
    StoredExperiment,
    StoredState,
)
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait
from nni_manager.domain.space.parameters import Proposal
from nni_manager.platform_kit.contract import Capabilities
from trial_runner import protocol

#: Of a service without an adapter yet.
_NONE = Capabilities(watches=False, reads_files=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """The state of a training service in this process."""

    #: It has been connected; before, it takes no jobs.
    is_ready: bool = True
    #: Time since which it is unreachable; None: reachable.
    away_since_ms: int | None = None
    #: Why it is unavailable; empty: it is available.
    trouble: str = ""
    #: If unavailable: time of the next attempt.
    retry_at_ms: int = 0
    #: Number of jobs it has room for; None: unlimited.
    free: int | None = None
    #: Its credentials are refused, and one job may be tried now.
    is_tried: bool = False
    #: Why it has no room; None: it has, or this is unknown.
    full: Wait | None = None
    #: Capabilities of its adapter.
    capabilities: Capabilities = _NONE

    def may_submit(self, now_ms: int) -> bool:
        """Whether it is available, or may be tried again."""
        return self.is_ready and (not self.trouble or now_ms >= self.retry_at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceView:
    """One training service of the experiment."""

    name: str
    state: ServiceState
    #: Maximum number of trials at a time; None: the experiment's limit.
    limit: int | None = None
    #: Why it is not used; a hold for refused credentials ends automatically.
    hold: Hold | None = None
    #: It takes no new attempts.
    is_removed: bool = False

    @property
    def is_tried(self) -> bool:
        """Whether one job may be submitted despite a hold for refused credentials."""
        return self.state.is_tried and self.hold is not None and self.hold.code is HoldCode.BAD_CREDENTIALS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """The part of a snapshot that is only in memory; the next process recovers it."""

    now_ms: int
    #: Time when this process first saw the status STOPPING.
    stopping_since_ms: int | None = None
    #: Names of jobs that this process is submitting.
    submitting: frozenset[str] = frozenset()
    #: Trials whose checkpoints this process is removing, or will soon try again to remove.
    removing_checkpoints: frozenset[str] = frozenset()
    #: Names of jobs cancelled since the last connect.
    cancelled: frozenset[str] = frozenset()
    #: Names of jobs observed by this process; None: not needed. The running time of others is unknown, as the clock may
    #: have been set before.
    heard: frozenset[str] | None = None
    #: By name.
    services: Mapping[str, ServiceState] = field(default_factory=dict)
    #: From the tuner, in order.
    proposals: tuple[Proposal, ...] = ()
    #: Number of requested proposals that have not arrived.
    asked: int = 0
    #: The tuner has no more proposals for the results it knows.
    exhausted: bool = False
    #: Number of proposals to request ahead of free slots.
    ahead: int = 0
    #: Private data is missing from its folder; the user must supply it.
    missing: Hold | None = None
    #: The hold of a silent tuner, which is not stored.
    tuner_trouble: Hold | None = None
    #: Milliseconds of listening for runners; None: not listening yet.
    listening_ms: int | None = None
    #: Job → milliseconds since its runner's last post to this process.
    silent_ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def by_runner(self) -> frozenset[str]:
        """Services for which only the runner's posts show a running job, once the listener is open."""
        if self.listening_ms is None:
            return frozenset()
        return frozenset(name for name, state in self.services.items() if state.capabilities.lives_by_runner)

    def silence_ms(self, job: Attempt) -> int | None:
        """Milliseconds since the last post of a job that only its runner reports on; None: another job."""
        service = self.services.get(job.service)
        if service is None or not service.capabilities.lives_by_runner or self.listening_ms is None:
            return None
        if job.channel != protocol.PUSH or job.state != JobState.RUNNING:
            return None
        return self.silent_ms.get(job.job_name, self.listening_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    stored: StoredState
    spec: ExperimentSpec
    #: In config order; removed ones with attempts come last.
    services: tuple[ServiceView, ...]
    here: ProcessState

    @staticmethod
    def of(stored: StoredState, spec: ExperimentSpec, here: ProcessState) -> Snapshot:
        """Combines the parts; services are those of the config, then others of this process."""
        limits = {platform.service: platform.trial_concurrency for platform in spec.platforms}
        services = tuple(
            ServiceView(
                name=name,
                state=here.services.get(name, _UNKNOWN_SERVICE),
                limit=limits.get(name),
                hold=stored.holds.get(name),
                is_removed=name not in limits,
            )
            for name in dict.fromkeys((*limits, *here.services))
        )
        return Snapshot(stored=stored, spec=spec, services=services, here=here)

    def with_hold(self, hold: Hold | None) -> Snapshot:
        """The snapshot with another hold of the experiment."""
        experiment = self.experiment._replace(hold=hold)
        return replace(self, stored=replace(self.stored, experiment=experiment))

    def service(self, name: str) -> ServiceView:
        """The service of this name; an unknown one counts as removed and available."""
        for service in self.services:  # few; called several times per open trial
            if service.name == name:
                return service
        return ServiceView(name=name, state=ServiceState(), is_removed=True)

    @property
    def experiment(self) -> StoredExperiment:
        return self.stored.experiment

    @property
    def is_stopping(self) -> bool:
        return self.experiment.status is ExperimentStatus.STOPPING

    @property
    def hold(self) -> Hold | None:
        return self.experiment.hold or self.here.missing or self.here.tuner_trouble

    @property
    def exec_ms(self) -> int:
        """Milliseconds that the experiment was active and not on hold."""
        counted = self.here.now_ms - self.experiment.counted_ms if self.experiment.is_counting else 0
        return self.experiment.exec_ms + max(0, counted)


#: Of a service that this process has not created yet.
_UNKNOWN_SERVICE = ServiceState(is_ready=False, trouble="it is being connected")
