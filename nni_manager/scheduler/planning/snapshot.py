"""The snapshot of an experiment: what the store holds, and what only this process knows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nni_manager.domain.evidence import RunnerWord
from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus, Hold, HoldCode
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait
from nni_manager.store import experiments, jobs, missed_jobs, runners, services, trials
from nni_manager.store.experiments import ExperimentRow
from nni_manager.store.jobs import AttemptRow
from nni_manager.store.missed_jobs import Missed
from nni_manager.store.services import ServiceRow
from nni_manager.store.trials import OpenTrial
from trial_runner import protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Values the tuner gave, not yet bound to a trial."""

    parameter_id: int
    values: object


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
    #: As in its adapter's `Capabilities`.
    platform_decides: bool = False
    has_portal: bool = False
    unreachable_grace_s: float | None = None
    #: A trial runner wraps the command of every job, and is to be heard or read.
    expects_runner: bool = False
    #: Its results may come through storage that is shared.
    is_read: bool = False
    #: Nothing but the posts of its runner tells whether a job that was started still runs.
    lives_by_runner: bool = False

    def may_submit(self, now_ms: int) -> bool:
        """Whether it takes jobs, or it is time to try again."""
        return self.is_ready and (not self.trouble or now_ms >= self.retry_at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
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

    def silence_ms(self, job: AttemptRow) -> int | None:
        """The milliseconds for which a running job's runner was silent; None for a job that others tell of, too."""
        service = self.services.get(job.service)
        if service is None or not service.lives_by_runner or self.listening_ms is None:
            return None
        if job.channel != protocol.PUSH or job.state != JobState.RUNNING:
            return None
        return self.silent_ms.get(job.job_name, self.listening_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    experiment: ExperimentRow
    spec: ExperimentSpec
    #: In the order of the config; removed ones that still have attempts come last.
    services: tuple[Service, ...]
    #: Not ended, oldest first.
    open_trials: tuple[OpenTrial, ...]
    #: (platform, user code): attempts given up on either account, of trials whose attempt may have failed.
    retries: Mapping[str, tuple[int, int]]
    #: Of jobs that were decided on earlier and have no handle: outbox → bytes stored, as they may have run already.
    stored: Mapping[str, Mapping[str, int]]
    #: Jobs whose runner has said that its command ended, and all of whose results are stored.
    drained: frozenset[str]
    #: Of the others: outbox → (bytes stored, bytes that there are).
    missing: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    #: Trial that waits for its next attempt → service on which its last job may still run.
    left: Mapping[str, str] = field(default_factory=dict)
    #: Trial → attempts that were given up because their jobs could not be asked about.
    missed: Mapping[str, tuple[Missed, ...]] = field(default_factory=dict)
    #: Unused trial ids, for the proposals in hand that there may be a slot for.
    fresh_ids: tuple[str, ...]
    #: (id, status, reason, message) of the first trials that ended, at most `failures.SAME_FAILURES`.
    first_ended: tuple[tuple[str, str, str, str], ...]
    #: Failure keys of the last trials that ended since the experiment was resumed, in their order; fewer than
    #: `maxSameFailures`.
    last_keys: tuple[str, ...] = ()
    #: Trials that failed since then; counted where `maxFailedTrials` is set.
    failed: int = 0
    here: ProcessState

    def service(self, name: str) -> Service:
        """The service of this name; one that nobody knows any more counts as removed and well."""
        found = next((service for service in self.services if service.name == name), None)
        return found or Service(name=name, state=ServiceState(), is_removed=True)

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


def load(connection: sqlite3.Connection, spec: ExperimentSpec, here: ProcessState, *, first_ended: int) -> Snapshot:
    """Reads the picture; runs inside the turn's transaction."""
    experiment = experiments.load(connection)
    open_trials = trials.load_open(connection)
    failed = [trial.id for trial in open_trials if trial.job is not None and _may_have_failed(trial.job, here)]
    few = experiment.ended_trials < first_ended
    missing = dict(_missing(connection, open_trials))
    return Snapshot(
        experiment=experiment,
        spec=spec,
        services=_services(spec, here, services.load(connection)),
        open_trials=open_trials,
        retries={id_: jobs.retries(connection, id_) for id_ in failed},
        stored={name: jobs.offsets(connection, name) for name in _without_handle(open_trials, here)},
        drained=frozenset(name for name, outboxes in missing.items() if not outboxes),
        missing=missing,
        left=_left(connection, open_trials),
        missed=_missed(connection, open_trials),
        fresh_ids=trials.fresh_ids(connection, _most_new_trials(spec, here, open_trials)),
        first_ended=tuple(trials.first_ended(connection, first_ended)) if few else (),
        last_keys=trials.last_keys(connection, experiment.resumed_end, spec.max_same_failures - 1),
        failed=trials.failed_since(connection, experiment.resumed_end) if spec.max_failed_trials is not None else 0,
        here=here,
    )


def _services(spec: ExperimentSpec, here: ProcessState, rows: Mapping[str, ServiceRow]) -> tuple[Service, ...]:
    limits = {platform.service: platform.trial_concurrency for platform in spec.platforms}
    names = [*limits, *(name for name in here.services if name not in limits)]
    return tuple(
        Service(
            name=name, state=here.services.get(name, _UNKNOWN_SERVICE), limit=limits.get(name),
            hold=rows[name].hold if name in rows else None, is_removed=name not in limits,
        )
        for name in names
    )  # fmt: skip


def _most_new_trials(spec: ExperimentSpec, here: ProcessState, open_trials: tuple[OpenTrial, ...]) -> int:
    in_play = sum(trial.job is not None and not _has_ended(trial.job) for trial in open_trials)
    return min(len(here.proposals), max(0, spec.trial_concurrency - in_play))


def _has_ended(job: AttemptRow) -> bool:
    return job.runner_exit is not None or (job.state != jobs.INTENT and JobState(job.state).is_final)


def _may_have_failed(job: AttemptRow, here: ProcessState) -> bool:
    is_silent = here.silence_ms(job) is not None
    return is_silent or (_has_ended(job) and (job.runner_exit is not None or job.state != JobState.SUCCEEDED))


def _without_handle(open_trials: Iterable[OpenTrial], here: ProcessState) -> Iterator[str]:
    """Names of jobs that were submitted in vain, or by a process that died before it wrote the answer down."""
    for trial in open_trials:
        if trial.job is not None and trial.job.handle is None and trial.job.job_name not in here.submitting:
            yield trial.job.job_name


def _left(connection: sqlite3.Connection, open_trials: Iterable[OpenTrial]) -> dict[str, str]:
    """After a stop that did not reach their service, and a resume."""
    tried = [trial.id for trial in open_trials if trial.job is None and trial.attempt > 1]
    return {id_: service for id_ in tried if (service := jobs.left_of(connection, id_)) is not None}


def _missed(connection: sqlite3.Connection, open_trials: Iterable[OpenTrial]) -> dict[str, tuple[Missed, ...]]:
    found: dict[str, tuple[Missed, ...]] = {}
    if any(trial.attempt > 1 for trial in open_trials):
        for one in missed_jobs.missed(connection):
            found[one.trial_id] = (*found.get(one.trial_id, ()), one)
    return found


def _missing(
    connection: sqlite3.Connection, open_trials: Iterable[OpenTrial]
) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """The results that are missing, by job, of jobs whose runner has said that its command ended."""
    for trial in open_trials:
        if trial.job is not None and trial.job.runner_exit is not None:
            word = RunnerWord.parse(trial.job.runner_exit)
            yield trial.job.job_name, runners.missing(connection, trial.job.job_name, word.outboxes)


#: Of a service that this process has not built yet.
_UNKNOWN_SERVICE = ServiceState(is_ready=False, trouble="it is being connected")
