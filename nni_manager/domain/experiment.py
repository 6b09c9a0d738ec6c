"""The records of an experiment: spec, status, holds, warnings, and the stored state for a turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from nni_manager.domain.algorithm import AlgorithmSpec, ignores_results
from nni_manager.domain.attempt import Attempt
from nni_manager.domain.errors import Problem
from nni_manager.domain.job import JobHandle
from nni_manager.domain.results.final_result import MAX_UNUSABLE, ReportedResult
from nni_manager.domain.trial import PLATFORM_RETRIES, OpenTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentWarning:
    """A warning, as shown by REST, page and command line."""

    #: The kind, for programs: capitals and underscores, e.g. ``TRIAL_PORT_MOVED``.
    code: str
    #: One sentence: what is so, and what to do about it.
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigWarning(Problem):
    """A warning about an experiment file, in the format of a problem."""

    #: As `ExperimentWarning.code`.
    code: str

    @property
    def told(self) -> ExperimentWarning:
        """The warning with file, line and field in its message."""
        return ExperimentWarning(code=self.code, message=str(self))


Json = Mapping[str, object]


class ExperimentStatus(StrEnum):
    """The status of an experiment, with NNI's terms and meaning, but without its dead ends."""

    #: Known, not started.
    INITIALIZED = "INITIALIZED"
    #: New trials are made.
    RUNNING = "RUNNING"
    #: A limit is reached, trials still run.
    NO_MORE_TRIAL = "NO_MORE_TRIAL"
    #: The tuner has no more proposals, trials still run.
    TUNER_NO_MORE_TRIAL = "TUNER_NO_MORE_TRIAL"
    #: Nothing left to run. Raising a limit wakes it.
    DONE = "DONE"
    #: Cannot go on; `resume` tries again.
    ERROR = "ERROR"
    #: Asked to stop; trials are being ended.
    STOPPING = "STOPPING"
    #: Closed. `resume` opens it again.
    STOPPED = "STOPPED"
    #: Open for reading only.
    VIEWED = "VIEWED"

    @property
    def is_active(self) -> bool:
        """Whether trials may run and execution time counts."""
        return self in _ACTIVE

    @property
    def is_closed(self) -> bool:
        """Whether it is closed: no loop runs it."""
        return self in (ExperimentStatus.STOPPED, ExperimentStatus.VIEWED)


_ACTIVE = frozenset({ExperimentStatus.RUNNING, ExperimentStatus.NO_MORE_TRIAL, ExperimentStatus.TUNER_NO_MORE_TRIAL})


class HoldCode(StrEnum):
    """Why no new trials start although the experiment has not ended."""

    #: The tuner or assessor raised an exception.
    TUNER_RAISED = "TUNER_RAISED"
    #: Its process died three times in ten minutes.
    TUNER_DIED = "TUNER_DIED"
    #: The tuner has not answered for a minute, or its process cannot be started for now; ends by itself when it does.
    TUNER_SILENT = "TUNER_SILENT"
    #: The platform refuses our credentials.
    BAD_CREDENTIALS = "BAD_CREDENTIALS"
    #: Environment or secrets are missing from the experiment's folder; the user must give them again.
    PRIVATE_MISSING = "PRIVATE_MISSING"
    #: The platform takes no jobs at the moment; ends by itself when it does.
    PLATFORM_UNAVAILABLE = "PLATFORM_UNAVAILABLE"
    #: The database cannot be written; ends by itself when it can.
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    #: The first five trials failed in the same way, or `maxSameFailures` in a row did.
    SAME_FAILURE = "SAME_FAILURE"
    #: More trials failed than `maxFailedTrials` lets fail.
    TOO_MANY_FAILURES = "TOO_MANY_FAILURES"
    #: The first `maxUnusableResults` trials that succeeded have no result that can be compared.
    NO_USABLE_RESULT = "NO_USABLE_RESULT"
    #: A training service refused a job for a cause that will not change.
    SUBMIT_REJECTED = "SUBMIT_REJECTED"
    #: A training service will never start one of its jobs as it is; ends by itself when that job starts or is gone.
    NEVER_STARTS = "NEVER_STARTS"
    #: Trials run in another version of Python than the function that they call needs.
    OTHER_PYTHON = "OTHER_PYTHON"
    #: The experiment cannot be opened; the user must look.
    NOT_OPEN = "NOT_OPEN"
    #: A fault of ours, or of an adapter; the log has the stack.
    INTERNAL = "INTERNAL"


#: Holds that end without a person, so waiting for the experiment goes on.
PASSING_HOLDS = frozenset({HoldCode.TUNER_SILENT, HoldCode.PLATFORM_UNAVAILABLE, HoldCode.STORE_UNAVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    code: HoldCode
    #: One sentence: what happened and what to do.
    sentence: str
    #: Traceback or stack, or empty.
    details: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformSpec:
    """A training service of the config."""

    #: Folder name of the adapter, e.g. ``local``.
    name: str
    #: Its name within the experiment: ``openpai``, ``openpai-2``.
    service: str
    #: The section, canonical camelCase, defaults filled; secrets are references. Never log it.
    settings: Json = field(repr=False)

    @property
    def trial_concurrency(self) -> int | None:
        """Maximum number of trials at a time on this service; None: as for the experiment."""
        most = self.settings.get("trialConcurrency")
        return most if isinstance(most, int) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSpec:
    """A configured experiment, independent of the file's format. Paths are absolute, durations are in seconds."""

    name: str | None
    search_space: Json
    trial_command: str
    trial_code_directory: str
    trial_concurrency: int
    #: None (not restricted) and 0 (sees no GPU) differ.
    trial_gpu_number: int | None
    max_experiment_duration_s: int | None
    max_trial_number: int | None
    max_trial_duration_s: int | None
    debug: bool
    log_level: str
    working_directory: str
    tuner_gpu_indices: tuple[int, ...] | None
    tuner: AlgorithmSpec
    assessor: AlgorithmSpec | None
    #: More than one: hybrid.
    platforms: tuple[PlatformSpec, ...]
    #: Retries after failures of user code; failures of the platform are counted separately.
    max_trial_retries: int = 0
    #: Retries of a trial whose job the platform ended, or lost.
    max_platform_retries: int = PLATFORM_RETRIES
    #: Number of consecutive failures with one key that puts the experiment on hold; 0: unlimited.
    max_same_failures: int = 10
    #: Number of trials that may fail; one more puts the experiment on hold. None: unlimited.
    max_failed_trials: int | None = None
    #: Number of succeeded trials without a usable result, from the first on, that puts the experiment on hold; 0: no
    #: hold.
    max_unusable_results: int = MAX_UNUSABLE
    #: Number of trials that keep their checkpoints after they ended well, those with the best results; None: all.
    kept_checkpoints: int | None = None
    grace_period_s: float = 5.0
    #: Of the logs that are kept of one attempt which runs elsewhere.
    max_log_bytes: int = 100 * 2**20
    #: Of the results of one attempt; later intermediate results are dropped.
    max_result_bytes: int = 64 * 2**20
    metric_grace_s: float = 10.0
    version_check: bool = True
    #: ``http``: runners send what trials print, where the platform keeps no logs; ``none``: they do not.
    log_collection: str = "none"
    #: How jobs elsewhere reach this machine, NNI's `nniManagerIp`; empty: by its own address.
    manager_ip: str = ""
    #: The section `sharedStorage`, canonical; secrets are references.
    shared_storage: Json | None = field(default=None, repr=False)
    #: Names of the variables of the caller's environment that are kept; None: all.
    caller_environment: tuple[str, ...] | None = None
    #: The Python of a user's tuner and assessor: a path, or a name on the caller's PATH; empty: its ``python3``.
    tuner_python: str = ""
    #: Ids of other experiments whose results the tuner gets first.
    warm_start: tuple[str, ...] = ()
    #: The config as NNI's clients see it: camelCase, absent fields left out, secrets are references. Never log it.
    canonical: Json = field(default_factory=dict, repr=False)
    #: Warnings about its file, in the order of the lines; empty for a stored experiment.
    warnings: tuple[ConfigWarning, ...] = field(default=(), compare=False)

    @property
    def may_continue_trials(self) -> bool:
        """Whether the tuner may let a later trial begin with the checkpoint of a finished one."""
        return bool(self.tuner.class_name) or self.tuner.name not in _NEVER_CONTINUING

    @property
    def counts_unusable_results(self) -> bool:
        """Whether `max_unusable_results` applies: not for a tuner that ignores results."""
        return self.max_unusable_results > 0 and not ignores_results(self.tuner.name or self.tuner.class_name)

    @property
    def multi_thread(self) -> bool:
        """Whether each proposal of a user's tuner is generated in a separate thread."""
        deprecated = self.canonical.get("deprecated")
        return isinstance(deprecated, Mapping) and deprecated.get("multiThread") is True

    @property
    def has_user_class(self) -> bool:
        """Whether tuner, assessor or both are the user's own."""
        return any(one is not None and one.class_name for one in (self.tuner, self.assessor))

    def kept_of(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The part of the caller's environment that the experiment keeps."""
        names = self.caller_environment
        return {name: value for name, value in environment.items() if names is None or name in names}

    @property
    def checks_version(self) -> bool:
        """Whether trial runners must have the manager's version."""
        return self.version_check and not self.debug


#: No tuner, and the built-in ones that hand no checkpoint from one trial to the next. Any other may: a user's class, or
#: a tuner that another package has installed under a name.
_NEVER_CONTINUING = frozenset(
    {"", "Random", "GridSearch", "TPE", "Auto", "NSGA2", "Batch", "Anneal", "Evolution", "CmaEs", "GPTuner", "SMAC"}
)


class StoredExperiment(NamedTuple):
    """The record of an experiment."""

    id: str
    status: ExperimentStatus
    #: Why status is ERROR, else empty.
    error: str
    hold: Hold | None
    #: Canonical JSON text; secrets included, never log it.
    config: str
    created_ms: int
    ended_ms: int | None
    #: Milliseconds spent active, up to `counted_ms`.
    exec_ms: int
    counted_ms: int
    next_sequence_id: int
    next_parameter_id: int
    ended_trials: int
    #: `ended_trials` when it was resumed last: failures up to then are not counted.
    resumed_end: int
    revision: int
    #: Path of the creator's Python.
    interpreter: str = ""
    #: Where its folder was when it was last opened.
    folder: str = ""
    #: Carried by its jobs, see `domain.job.JobSpec`; empty: not compared.
    nonce: str = ""
    #: See `platform_kit.contract.Host`; empty for a folder that NNI made.
    storage_key: str = ""
    #: ``maximize`` or ``minimize``, the default of the user's tuner class; empty: unknown.
    class_direction: str = ""
    #: Number of succeeded trials since the start or the last resume, all without a usable result; None: one had one.
    unusable_results: int | None = 0
    #: DONE: it was stopped after it was done; empty: it is open, or was stopped before.
    ended_as: str = ""
    #: Identity of the data directory whose daemon opened it last; empty: unknown.
    owner: str = ""

    @property
    def is_counting(self) -> bool:
        """Whether its time counts towards `maxExperimentDuration`: it is active, and not on hold."""
        return self.status.is_active and self.hold is None

    def __repr__(self) -> str:
        return f"StoredExperiment(id={self.id!r}, status={self.status!r}, revision={self.revision})"


class NeedlessCheckpoint(NamedTuple):
    """A checkpoint of a successful trial that is not needed any more."""

    trial_id: str
    #: (training service, job) of each attempt: it may have been at several places.
    jobs: tuple[tuple[str, JobHandle], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The part of an experiment's database for its next plan."""

    experiment: StoredExperiment
    #: Training service → its hold: something must be put right before it is used again.
    holds: Mapping[str, Hold | None]
    #: Not ended, oldest first.
    open_trials: tuple[OpenTrial, ...]
    #: Trial → (attempts that failed by the platform, by user code), for trials with an attempt that may have failed.
    retries: Mapping[str, tuple[int, int]]
    #: Job without a handle that may have run already → bytes stored per outbox.
    offsets: Mapping[str, Mapping[str, int]]
    #: Job with a command that ended, as its runner reported → outbox that is not stored whole → (bytes stored, bytes
    #: written).
    missing: Mapping[str, Mapping[str, tuple[int, int]]]
    #: Trial that waits for its next attempt → service on which its last job may still run.
    left: Mapping[str, str] = field(default_factory=dict)
    #: Trial → attempts that were given up because their jobs could not be observed, the last first.
    missed: Mapping[str, tuple[Attempt, ...]] = field(default_factory=dict)
    #: Unused trial ids for waiting proposals.
    fresh_ids: tuple[str, ...]
    #: (id, status, reason, message, failure key) of the first trials that ended, while these are few.
    first_ended: tuple[tuple[str, str, str, str, str], ...]
    #: Failure keys of the last trials that ended since the experiment was resumed, in their order; fewer than
    #: `maxSameFailures`. Read where an attempt may have failed.
    last_keys: tuple[str, ...] = ()
    #: Trials that failed since then; counted where `maxFailedTrials` is set.
    failed: int = 0
    #: Trial whose job has ended, or may have → its results; read while unusable results are counted.
    reported: Mapping[str, ReportedResult] = field(default_factory=dict)
    #: Checkpoints to remove, by `keepCheckpoints`; a few of them, where there are many.
    needless: tuple[NeedlessCheckpoint, ...] = ()

    def is_drained(self, job_name: str) -> bool:
        """Whether the job's runner has reported the end of the command, and all results are stored."""
        return self.missing.get(job_name) == {}


@dataclass(slots=True)
class LiveSpec:
    """The experiment's current config, shared by loop, tuner and jobs, so that a change reaches all at once."""

    now: ExperimentSpec
