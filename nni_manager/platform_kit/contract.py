"""The contract of adapters: their verbs, and entering and leaving.

* An instance is one training service of one experiment. Entering connects and exiting disconnects, *leaving jobs
  running*. `close` is called before the last exit of a stopped experiment, `clean` when it is deleted.
* Every verb may be repeated at any time: after a crash the scheduler repeats calls with an unknown outcome.
* An adapter reports what it observes and decides nothing. A job that is gone (LOST) differs from a failed query:
  PlatformUnavailable for all jobs, `Observation.unreachable` for some. `Observation.native_reason` is the service's own
  term for an end. It is displayed but never decides; the adapter's table maps only the terms for insufficient memory
  and for containers that could not be created to a `cause`.
* `forget` may be called for a running job: a closed attempt need not have ended.
* Allowed errors: SubmitRejected, PlatformUnavailable, BadCredentials. Any other error is a bug in the adapter.
  BadCredentials is retried: after a minute without another answer the service is on hold, and one call a minute is
  tried until one succeeds. A verb beyond its time limit (`TIME_LIMITS_S`) is cancelled: PlatformUnavailable.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from nni_manager.domain.attempt import Observation
from nni_manager.domain.experiment import ExperimentSpec, Json
from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.domain.service import Wait
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.machine_report import MachineReport
from nni_manager.platform_kit.secret_texts import PrivateText
from nni_manager.platform_kit.section_model import PlatformSection
from trial_runner.protocol import LOG_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The declared capabilities of an adapter."""

    #: It receives events and calls `Host.wake`; `observe` answers from memory. Otherwise `observe` polls.
    watches: bool
    reads_files: bool  #: `read_file` works.
    #: A trial runner wraps the command inside the job and reports to the trial listener.
    has_runner: bool = False
    #: Only the runner's posts show whether a started job still runs.
    lives_by_runner: bool = False
    #: The runner leaves results on storage that jobs share with the manager, and the adapter reads them.
    is_read: bool = False
    #: The code directory is packed and sent; otherwise jobs use it in its place.
    ships_code: bool = False
    runs_in_place: bool = False  #: In the user's own folder on this machine, where an edit affects later trials.
    #: Files of an experiment, such as output of trials, remain there after `forget` and `close`: `clean` removes them
    #: when the experiment is deleted.
    leaves_files: bool = False
    clean_closes: bool = False  #: `clean` without names removes all that a failed `close` has left.
    removes_checkpoints: bool = False  #: `remove_checkpoints` works.
    #: The platform itself restarts ended processes of a job: its report, not the runner's, ends an attempt.
    platform_decides: bool = False
    #: Users can stop jobs there: a job ended by a foreign signal stays open until the platform reports why.
    has_portal: bool = False
    #: Seconds for which a job may be unreachable before it counts as lost; None: unlimited.
    unreachable_grace_s: float | None = None
    #: Maximum seconds between two calls of `observe`.
    slow_poll_s: float = 30.0

    @property
    def expects_runner(self) -> bool:
        """Whether a job that succeeds without a report of its runner is in doubt."""
        return self.has_runner or self.is_read


#: Verb → time limit of a call in seconds; a submission that exceeds it may have been accepted. "clean for good":
#: `clean` of a deleted experiment, which removes all files of its trials.
TIME_LIMITS_S: Mapping[str, float] = {
    "enter": 30.0,
    "preflight": 60.0,
    "plan": 15.0,
    "submit": 60.0,
    "observe": 30.0,
    "cancel": 30.0,
    "forget": 30.0,
    "remove_checkpoints": 30.0,
    "read_file": 30.0,
    "list_files": 30.0,
    "close": 30.0,
    "clean": 30.0,
    "clean for good": 600.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The number of further jobs that the service would accept now; a hint: `submit` may still find no room."""

    #: Number of further jobs; None: unlimited.
    free: int | None = None
    #: Why it has no room, or less than the maximum.
    why: Wait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRoom:
    """A result of `submit`: the job was not accepted. It is submitted again when room changes, as the same attempt."""

    why: Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The places that jobs would get now, if the service decides that itself."""

    #: One for each job that would start at once, such as ``hostA, gpu 0``.
    places: Sequence[str]
    #: Machine → why it accepts no further job, one sentence; machines that accept more are omitted.
    why_not: Mapping[str, str] = field(default_factory=dict)


class Severity(StrEnum):
    """The consequence of a preflight finding for the experiment."""

    #: The experiment cannot run: refused credentials, an unknown cluster, a missing right. `create` fails.
    WRONG = "wrong"
    #: The remote side is unreachable now; the experiment waits.
    AWAY = "away"
    #: The experiment runs, but the user should know the finding.
    WARNING = "warning"
    #: The check passed.
    FINE = "fine"


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """One finding of `preflight`."""

    severity: Severity
    #: The checked object, e.g. ``hostA: login`` or ``TFJob``.
    subject: str
    #: The finding, one sentence.
    sentence: str
    #: The next step; empty: none.
    fix: str = ""
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftObject:
    """An object at a service that an experiment created, according to its labels."""

    experiment_id: str
    #: The identity of the manager that created it; empty: unknown.
    manager: str
    #: Its kind and name, ``TFJob nni-exp-…``.
    what: str
    #: None: unknown.
    created_ms: int | None = None
    #: Why it cannot be removed; empty: it can.
    stays: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of a delivery. `resend`: earlier lines are missing; send again from the stored offsets."""

    resend: bool


class Deliver(Protocol):
    """The function with which an adapter delivers complete lines of one outbox."""

    def __call__(
        self,
        job_name: str,
        outbox: str,
        start: int,
        end: int,
        lines: Sequence[str],
        ended: Observation | None = None,
        container: str = "",
    ) -> Awaitable[Delivery]:
        """Delivers the lines; awaitable until they are stored. `start`, `end`: their byte offsets in the outbox.

        `container`: id of the container that wrote the lines; empty: unknown. Lines of a container are rejected once a
        newer one has registered.

        `ended`: the job's final report, if these are its last lines; the end is not observed again, unless the lines
        must be sent again.
        """


class Register(Protocol):
    """The function with which an adapter registers a runner that does not post but is read."""

    def __call__(
        self,
        job_name: str,
        runner_version: str | None,
        channel: str,
        *,
        container: str = "",
        outboxes: Mapping[str, int] | None = None,
    ) -> Awaitable[None]:
        """Registers a container. `container`: its identity; `outboxes`: bytes of each at its start, None: unknown.

        The newest container counts. If it found less than is stored, offsets restart at 0. Raises VersionRefused, and
        AttemptDecided for a container older than the registered one.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The scheduler as seen by an adapter: callbacks for events and results, shared connections, the folder."""

    experiment_id: str
    #: The training service's name in the experiment, ``openpai`` or ``openpai-2``.
    service: str
    #: This job changed: observe it. May be called any number of times.
    wake: Callable[[str], None]
    deliver: Deliver
    #: Stored bytes per outbox, for the named jobs and every accepted job that is still open.
    followed: Callable[[Sequence[str]], Awaitable[Mapping[str, Mapping[str, int]]]]
    stored: Callable[[str], Awaitable[Mapping[str, int]]]  #: Stored bytes per outbox of one job.
    #: Shared by experiments: the keeper of this machine, accounts, clusters, and places on machines.
    connections: Connections
    #: The experiment's folder; an adapter stores its files in a subfolder with the service's name.
    folder: Path
    #: The packed code directory, a tar.gz. Raises InvalidInput or OSError.
    code: Callable[[], Awaitable[Path]]
    register: Register
    #: (job name, report): how its command ended, in the form that `domain.evidence.RunnerExit` reads.
    exited: Callable[[str, str], Awaitable[None]]
    #: Private state of the adapter, such as passwords: one text, initially empty.
    private: PrivateText = field(default_factory=PrivateText)
    #: The current section `sharedStorage`, with secrets filled in; None: the experiment has none.
    shared_storage: Callable[[], Json | None] = lambda: None
    #: Random part of the names of its folders on storage, 24 hex digits; empty: created by an earlier version.
    storage_key: str = ""
    max_log_bytes: int = 100 * 2**20  #: Maximum size in bytes of the stored logs of one attempt.
    #: Initial environment of trials on this machine; None: unknown, or not needed by a preflight.
    caller_environment: Mapping[str, str] | None = field(default=None, repr=False)
    may_try_jobs: bool = False  #: A preflight may submit a short job.
    #: Seconds since the last post of the job's runner; None: the trial listener is not open yet.
    silence_s: Callable[[str], float | None] = lambda job_name: None


#: The model of the adapter's section of a config, which its `PlatformDescription.config` names.
ConfigT = TypeVar("ConfigT", bound=PlatformSection)


class Platform(abc.ABC, Generic[ConfigT]):
    """An adapter: one training service of one experiment. `ConfigT`: the model of its section of the config."""

    #: Set on the class, unless it depends on the config.
    capabilities: Capabilities
    #: Fields of the section, in camelCase, that may change while the experiment runs: the instance with the old values
    #: is exited, and one with the new values is entered and takes over its jobs. Secrets and fields of the scheduler
    #: (`trialConcurrency`) may always change.
    changeable: ClassVar[frozenset[str]] = frozenset()
    #: Kinds of `sharedStorage` that its jobs support. An adapter that lists some must use `Host.shared_storage`.
    mounts: ClassVar[frozenset[str]] = frozenset()
    #: Advice for users of an adapter without `mounts`: what to configure instead of `sharedStorage`.
    instead_of_shared_storage: ClassVar[str] = ""

    def __init__(self, config: ConfigT, host: Host) -> None:
        """Creates an adapter that is not entered. Must not use the network.

        `config`: the section of the config, with secrets filled in: never log their values.
        """
        self.config = config
        self.host = host
        self.capabilities = self.capabilities_for(config)

    def renew(self, config: ConfigT) -> None:
        """Replaces the secrets of the config, for the next calls.

        An adapter that copies values of the config overrides this.
        """
        self.config = config

    @classmethod
    def capabilities_for(cls, config: ConfigT) -> Capabilities:
        """The capabilities of an instance with this config."""
        return cls.capabilities

    @classmethod
    def connection_key(cls, config: ConfigT) -> str:
        """The identity of the remote side, without secrets. Any experiment that reaches it ends its leftover jobs."""
        return config.platform

    @classmethod
    def check(cls, spec: ExperimentSpec, config: ConfigT) -> None:
        """Refuses an experiment that this adapter cannot run with this config. Raises InvalidInput.

        Called before anything is created; secrets are still references.
        """
        return None

    async def preflight(self) -> Sequence[PreflightFinding]:
        """Checks before the first job whether jobs could run; leaves nothing there. May be called before entering.

        Raises no expected errors: an unreachable service is a finding.
        """
        return ()

    async def __aenter__(self) -> Self:
        """Connects. May raise PlatformUnavailable or BadCredentials, and is then repeated."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Disconnects; jobs continue. Leaves no task, thread, file or connection."""

    def try_again(self) -> None:
        """Retries refused calls at once, as the user may have fixed the cause. Called while entered."""

    def room(self) -> Room:
        """The room for more jobs, immediately from memory; `Host.wake("")` reports changes."""
        return _UNLIMITED

    def machines(self) -> Sequence[MachineReport]:
        """The current state of its machines, from memory, for display. Called while entered."""
        return ()

    def want(self, jobs: int) -> None:
        """Notes the number of trials that wait for room at the service. Called when the number changes."""

    async def plan(self, jobs: int) -> JobPlan | None:
        """The places that a number of jobs would get now, without reserving them; None: unknown.

        Called while entered.
        """
        return None

    @abc.abstractmethod
    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        """Submits a job and returns when it is accepted. The same name (and nonce) twice is the same job.

        Raises SubmitRejected, or PlatformUnavailable, whose `refused` says that the job was certainly not accepted.
        """

    @abc.abstractmethod
    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        """Reports on all these jobs, at least one, with a bounded number of remote calls. A missing job is LOST."""

    @abc.abstractmethod
    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        """Asks the jobs to end; ignores finished and unknown ones. `observe` reports their ends."""

    @abc.abstractmethod
    async def forget(self, handles: Sequence[JobHandle]) -> None:
        """Removes the platform's records of jobs whose attempts are closed; ignores unknown ones.

        A job may still run, if its runner's report closed the attempt or it counts as lost: it is then ended.
        """

    async def remove_checkpoints(self, handles: Sequence[JobHandle]) -> Mapping[JobHandle, str]:
        """Removes the checkpoint folders of these jobs' trials; all of the jobs are forgotten. Ignores missing folders.

        Returns the reasons of failures, which are retried. Only called if `capabilities.removes_checkpoints`.
        """
        raise NotImplementedError

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` (negative: from the end) of a file in the attempt's folder.

        Only called if `capabilities.reads_files`. Raises NotFound.
        """
        raise NotImplementedError

    async def list_files(self, handle: JobHandle) -> Sequence[str]:
        """The paths of files below the attempt's folder that `read_file` can read. A service that cannot list files
        returns the names of the logs, which need not exist.

        Only called if `capabilities.reads_files`. Raises NotFound.
        """
        return LOG_FILES

    async def close(self) -> None:
        """Removes what the service stores for a whole stopped experiment. Called while entered."""

    async def clean(self, job_names: Sequence[str]) -> None:
        """Ends and removes everything left of the experiment: these jobs, and every object with its id.

        Called on an instance that was not entered, perhaps long after the experiment was deleted. Also called on an
        entered one, after jobs were given up while the service was unreachable: then it only ends these jobs.
        """

    async def find_left(self, at_work: Collection[str], remove: Collection[str] | None) -> Sequence[LeftObject]:
        """Lists leftover objects of experiments of any manager, except those `at_work` (ids).

        `remove`: ids of experiments; their objects, except those that must stay, are removed, and only they are listed.
        None: nothing is removed.

        Called on an instance that was not entered, if the platform's description has `finds_left`.
        """
        return ()


_UNLIMITED = Room()
