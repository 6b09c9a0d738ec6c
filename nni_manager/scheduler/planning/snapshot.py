"""The snapshot of an experiment: what the store holds, and what only this process knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from nni_manager.domain.attempt import Attempt
from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus, Hold, HoldCode, StoredExperiment
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait
from nni_manager.domain.stored_state import StoredState
from nni_manager.platform_kit.contract import Capabilities
from trial_runner import protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Values the tuner gave, not yet bound to a trial."""

    parameter_id: int
    values: object


#: Of an adapter that is not there yet.
_NONE = Capabilities(watches=False, reads_files=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """A training service as only this process knows it."""

    #: It is connected, or was and cannot be asked now; otherwise it takes nothing.
    is_ready: bool = True
    #: Since when it cannot be asked; None while it can.
    away_since_ms: int | None = None
    #: Why it cannot be asked, or takes no jobs at the moment; empty when all is well.
    trouble: str = ""
    #: While there is trouble: when to try again.
    retry_at_ms: int = 0
    #: Jobs it has room for; None: as many as one likes.
    free: int | None = None
    #: Its credentials are refused, and it is time to try one job all the same.
    is_tried: bool = False
    #: When there is no room: why.
    full: Wait | None = None
    #: What its adapter can do.
    capabilities: Capabilities = _NONE

    def may_submit(self, now_ms: int) -> bool:
        """Whether it takes jobs, or it is time to try again."""
        return self.is_ready and (not self.trouble or now_ms >= self.retry_at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceView:
    """One training service of the experiment."""

    name: str
    state: ServiceState
    #: Trials it may have at a time; None: as many as the experiment.
    limit: int | None = None
    #: Something must be put right before it is used again; refused credentials are tried again by themselves.
    hold: Hold | None = None
    #: It takes nothing new.
    is_removed: bool = False

    @property
    def is_tried(self) -> bool:
        """Whether one job is submitted although it is on hold: the answer may be another one now."""
        return self.state.is_tried and self.hold is not None and self.hold.code is HoldCode.BAD_CREDENTIALS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """The part of a snapshot that is in no database: lost with the process, and found out again by the next one."""

    now_ms: int
    #: When this process first saw that the experiment is to be stopped.
    stopping_since_ms: int | None = None
    #: Jobs whose submission is under way in this process.
    submitting: frozenset[str] = frozenset()
    #: Jobs that were sent a stop since the platform was last (re)connected.
    cancelled: frozenset[str] = frozenset()
    #: Jobs that were reported on since this process began; None: it does not matter. The clock may have been set before
    #: that: how long another one has run is not known.
    heard: frozenset[str] | None = None
    #: By name.
    services: Mapping[str, ServiceState] = field(default_factory=dict)
    #: From the tuner, in order.
    proposals: tuple[Proposal, ...] = ()
    #: Proposals asked for and not answered yet.
    asked: int = 0
    #: The tuner has nothing more, as far as it knows the results.
    exhausted: bool = False
    #: How many proposals may be asked for before there is a slot for them.
    ahead: int = 0
    #: What the experiment runs with is not in its folder; a person must give it anew.
    missing: Hold | None = None
    #: The tuner cannot be asked now although it is on no recorded hold.
    tuner_trouble: Hold | None = None
    #: How long runners could be heard; None: not yet.
    listening_ms: int | None = None
    #: Job → how long its runner was not heard, of those that were heard in this process.
    silent_ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def by_runner(self) -> frozenset[str]:
        """Services of which nothing but the posts of runners tells whether a job still runs, once these are heard."""
        if self.listening_ms is None:
            return frozenset()
        return frozenset(name for name, state in self.services.items() if state.capabilities.lives_by_runner)

    def silence_ms(self, job: Attempt) -> int | None:
        """The milliseconds for which a running job's runner was silent; None for a job that others tell of, too."""
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
    #: In the order of the config; removed ones that still have attempts come last.
    services: tuple[ServiceView, ...]
    here: ProcessState

    @staticmethod
    def of(stored: StoredState, spec: ExperimentSpec, here: ProcessState) -> Snapshot:
        """The snapshot with the services that the config and this process know."""
        return Snapshot(stored=stored, spec=spec, services=tuple(_services(stored, spec, here)), here=here)

    def with_hold(self, hold: Hold | None) -> Snapshot:
        """The same with another hold of the experiment."""
        experiment = self.experiment._replace(hold=hold)
        return replace(self, stored=replace(self.stored, experiment=experiment))

    def service(self, name: str) -> ServiceView:
        """The service of this name; one that nobody knows any more counts as removed and well."""
        found = next((service for service in self.services if service.name == name), None)
        return found or ServiceView(name=name, state=ServiceState(), is_removed=True)

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
        """Milliseconds the experiment was active, and not on hold, until now."""
        counted = self.here.now_ms - self.experiment.counted_ms if self.experiment.is_counting else 0
        return self.experiment.exec_ms + max(0, counted)


def _services(stored: StoredState, spec: ExperimentSpec, here: ProcessState) -> Iterator[ServiceView]:
    limits = {platform.service: platform.trial_concurrency for platform in spec.platforms}
    for name in (*limits, *(name for name in here.services if name not in limits)):
        yield ServiceView(
            name=name,
            state=here.services.get(name, _UNKNOWN_SERVICE),
            limit=limits.get(name),
            hold=stored.holds.get(name),
            is_removed=name not in limits,
        )


#: Of a service that this process has not built yet.
_UNKNOWN_SERVICE = ServiceState(is_ready=False, trouble="it is being connected")
