"""The contract of adapters: their verbs, and entering and leaving.

* An instance is one training service of one experiment. Enter and exit connect and disconnect, *leaving jobs running*.
  `close` comes before the last exit of an experiment that is stopped, `clean` when it is deleted.
* Every verb may be called again at any time: after a crash the scheduler repeats calls of unknown outcome.
* An adapter reports what it sees and decides nothing. "Gone" (LOST) and "could not ask" (PlatformUnavailable for all
  jobs, `Observation.unreachable` for some) differ. The service's own term for an end is `Observation.native_reason`,
  shown and never decided by; a table of the adapter makes a `cause` only of the terms for too little memory and for
  containers that could not be created.
* `forget` may be called for a job that still runs: a decided attempt need not have ended.
* Errors it may raise: SubmitRejected, PlatformUnavailable, BadCredentials. Anything else is a bug in the adapter.
  BadCredentials is retried: after a minute of nothing else the service is on hold, and retried once a minute until a
  call is answered. A verb that exceeds its time limit (`TIME_LIMITS_S`) is cancelled: it counts as PlatformUnavailable.
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
    """What an adapter can do: declared, never found out by failing."""

    #: It gets events and calls `Host.wake`; `observe` answers from memory. Otherwise `observe` polls.
    watches: bool
    #: `read_file` works.
    reads_files: bool
    #: A trial runner wraps the command inside the job and reports to the trial listener.
    has_runner: bool = False
    #: Only the runner's posts show whether a started job still runs.
    lives_by_runner: bool = False
    #: The runner leaves results on storage that jobs share with us, and the adapter reads them.
    is_read: bool = False
    #: The code directory is packed and sent; otherwise jobs see it where it is.
    ships_code: bool = False
    runs_in_place: bool = False  #: In the user's own folder on this machine: an edit changes what later trials run.
    #: Files of an experiment stay there after `forget` and `close`, such as those that trials wrote for their users:
    #: `clean` removes them when the experiment is deleted.
    leaves_files: bool = False
    #: `remove_checkpoints` works.
    removes_checkpoints: bool = False
    #: The platform itself restarts ended processes of a job: its report, not the runner's, ends an attempt.
    platform_decides: bool = False
    #: Users can stop jobs there: a job ended by a signal that we did not send stays open until the platform says why.
    has_portal: bool = False
    #: Seconds for which a job may be unreachable before it counts as lost; None: for ever.
    unreachable_grace_s: float | None = None
    #: Longest wait between two rounds of `observe`, in seconds.
    slow_poll_s: float = 30.0

    @property
    def expects_runner(self) -> bool:
        """Whether a job that succeeds without a report of its runner is in doubt."""
        return self.has_runner or self.is_read


#: Verb → seconds after which a call of it is given up; a submission that was given up may have been taken. Of an
#: experiment that is deleted, `clean` removes all that its trials wrote.
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
    """The number of further jobs that the service would take now; a hint: `submit` may still find no room."""

    #: Number of further jobs; None: unlimited.
    free: int | None = None
    #: Why there is no room, or less than there could be.
    why: Wait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRoom:
    """An answer of `submit`: the job was not taken and is submitted again when room changes; no attempt is used up."""

    why: Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The places of jobs if they were submitted now, as far as the service decides that itself."""

    #: One for each job that would start at once, such as ``hostA, gpu 0``.
    places: Sequence[str]
    #: Machine → why it takes no further job, one sentence; machines that take more are left out.
    why_not: Mapping[str, str] = field(default_factory=dict)


class Severity(StrEnum):
    """The consequence of a preflight finding for the experiment."""

    #: The experiment cannot work: refused credentials, an unknown cluster, a missing right. Refuses `create`.
    WRONG = "wrong"
    #: The far side cannot be asked now; the experiment waits.
    AWAY = "away"
    #: The experiment works; the user should know the finding.
    WARNING = "warning"
    #: The check passed.
    FINE = "fine"


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """One finding of `preflight`."""

    severity: Severity
    #: The checked thing, e.g. ``hostA: login`` or ``TFJob``.
    subject: str
    #: The finding, one sentence.
    sentence: str
    #: The next step; empty: none is needed.
    fix: str = ""
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftObject:
    """An object at a service that an experiment made, by its own labels."""

    experiment_id: str
    #: The identity of the manager that made it; empty: it does not say.
    manager: str
    #: Its kind and name, ``TFJob nni-exp-…``.
    what: str
    #: None: the service does not say.
    created_ms: int | None = None
    #: Why it cannot be removed; empty: it can.
    stays: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The answer to a delivery. `resend`: something before its lines is missing; send again from the stored offsets."""

    resend: bool


class Deliver(Protocol):
    """The function by which an adapter hands over complete lines of one outbox."""

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
        """Hands the lines over; awaitable until they are stored. `start`, `end`: their place in the outbox, in bytes.

        `container`: id of the container that wrote the lines; empty: unknown. Lines of a container are rejected once a
        newer one has registered.

        `ended`: the job has ended so, and these lines are its last; its end is not observed again, unless the lines
        must be sent again.
        """


class Register(Protocol):
    """The function by which an adapter registers a runner that does not post but is read."""

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

        The newest container counts: where it found less than is stored, offsets begin at 0 again. Raises
        VersionRefused, and AttemptDecided for a container older than the registered one.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The scheduler as an adapter sees it: callbacks for events and results, shared connections, the folder."""

    experiment_id: str
    #: The training service's name in the experiment, ``openpai`` or ``openpai-2``.
    service: str
    #: Something about this job changed: observe it. Any number of calls is fine.
    wake: Callable[[str], None]
    deliver: Deliver
    #: Bytes stored per outbox, for the named jobs and every job that is accepted and still open.
    followed: Callable[[Sequence[str]], Awaitable[Mapping[str, Mapping[str, int]]]]
    #: Bytes stored per outbox of one job.
    stored: Callable[[str], Awaitable[Mapping[str, int]]]
    #: Shared by experiments: the keeper of this machine, accounts, clusters, and places of machines.
    connections: Connections
    #: The experiment's folder; an adapter keeps its files in a subfolder with the service's name.
    folder: Path
    #: The packed code directory, a tar.gz. Raises InvalidInput or OSError.
    code: Callable[[], Awaitable[Path]]
    register: Register
    #: (job name, report): how its command ended, in the form that `domain.evidence.RunnerExit` reads.
    exited: Callable[[str, str], Awaitable[None]]
    #: Private state of the adapter, such as passwords: one text, empty at first.
    private: PrivateText = field(default_factory=PrivateText)
    #: The section `sharedStorage` as it is now, secrets in place; None: the experiment has none.
    shared_storage: Callable[[], Json | None] = lambda: None
    #: Random part of the names of its folders on storage, 24 hex digits; empty: made by an earlier version.
    storage_key: str = ""
    #: Bytes of the logs that are kept of one attempt.
    max_log_bytes: int = 100 * 2**20
    #: The environment that trials on this machine begin with; None: a preflight need not know it, or cannot.
    caller_environment: Mapping[str, str] | None = field(default=None, repr=False)
    #: For how many seconds the trial listener has heard nothing of the job's runner; None: it does not listen yet.
    silence_s: Callable[[str], float | None] = lambda job_name: None


#: The model of the adapter's section of a config, which its `PlatformDescription.config` names.
ConfigT = TypeVar("ConfigT", bound=PlatformSection)


class Platform(abc.ABC, Generic[ConfigT]):
    """An adapter: one training service of one experiment. `ConfigT`: the model of its section of the config."""

    #: Set on the class, unless they depend on the config.
    capabilities: Capabilities
    #: Fields of the section, in camelCase, that may change while the experiment runs: the instance with the old values
    #: is left, and one with the new values is entered and takes over its jobs. Secrets and fields of the scheduler
    #: (`trialConcurrency`) may always change.
    changeable: ClassVar[frozenset[str]] = frozenset()
    #: Kinds of `sharedStorage` that its jobs work on. An adapter that names some goes by `Host.shared_storage`.
    mounts: ClassVar[frozenset[str]] = frozenset()
    #: The fields in place of `sharedStorage`, for users of an adapter without `mounts`.
    instead_of_shared_storage: ClassVar[str] = ""

    def __init__(self, config: ConfigT, host: Host) -> None:
        """Makes an adapter that is not entered. Must not touch the network.

        `config`: the section of the config, secrets in place: never log their values.
        """
        self.config = config
        self.host = host
        self.capabilities = self.capabilities_for(config)

    def renew(self, config: ConfigT) -> None:
        """Takes the same config with other secrets, for the next calls.

        An adapter that keeps values of the config elsewhere overrides this.
        """
        self.config = config

    @classmethod
    def capabilities_for(cls, config: ConfigT) -> Capabilities:
        """The capabilities of an instance with this config."""
        return cls.capabilities

    @classmethod
    def connection_key(cls, config: ConfigT) -> str:
        """The identity of the far side, without secrets. Jobs left there are ended when any experiment reaches it."""
        return config.platform

    @classmethod
    def check(cls, spec: ExperimentSpec, config: ConfigT) -> None:
        """Refuses an experiment that this adapter cannot run with this config. Raises InvalidInput.

        Called before anything is created; secrets are references still.
        """
        return None

    async def preflight(self) -> Sequence[PreflightFinding]:
        """Checks before the first job whether jobs could run; leaves nothing there. May be called before entering.

        Raises nothing on purpose: an unreachable service is a finding.
        """
        return ()

    async def __aenter__(self) -> Self:
        """Connects. May raise PlatformUnavailable or BadCredentials, and is then tried again."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Disconnects; jobs run on. No task, thread, file or connection is left."""

    def try_again(self) -> None:
        """Retries refused calls at once: the user may have fixed the cause. Called while entered."""

    def room(self) -> Room:
        """The room for more jobs, from memory, at once; `Host.wake("")` says that it changed."""
        return _UNLIMITED

    def machines(self) -> Sequence[MachineReport]:
        """Its machines as they are now, from memory, for people to look at. Called while entered."""
        return ()

    def want(self, jobs: int) -> None:
        """Notes the number of trials that wait for room at the service. Called when the number changes."""

    async def plan(self, jobs: int) -> JobPlan | None:
        """The places of so many jobs if they were submitted now, without a reservation; None: unknown.

        Called while entered.
        """
        return None

    @abc.abstractmethod
    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        """Submits a job and returns when it is accepted. The same name (and nonce) twice is the same job.

        Raises SubmitRejected, or PlatformUnavailable; its `refused` says whether the job was certainly not taken.
        """

    @abc.abstractmethod
    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        """Reports on all these jobs, at least one, in a bounded number of remote calls. A missing job is LOST."""

    @abc.abstractmethod
    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        """Asks the jobs to end; quiet for finished and unknown ones. `observe` reports their ends."""

    @abc.abstractmethod
    async def forget(self, handles: Sequence[JobHandle]) -> None:
        """Removes the platform's records of jobs with a decided attempt; quiet for unknown ones.

        A job may still run, if its runner's report decided or it counts as lost: it is ended, and not observed again.
        """

    async def remove_checkpoints(self, handles: Sequence[JobHandle]) -> Mapping[JobHandle, str]:
        """Removes the folders of checkpoints of these jobs' trials, all of them forgotten; quiet where there is none.

        Answers why, of those that stay; they are tried again. Only when `capabilities.removes_checkpoints`.
        """
        raise NotImplementedError

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` (negative: from the end) of a file in the attempt's folder.

        Only when `capabilities.reads_files`. Raises NotFound.
        """
        raise NotImplementedError

    async def list_files(self, handle: JobHandle) -> Sequence[str]:
        """The paths of files below the attempt's folder that `read_file` can read; a service that cannot list them
        names the logs, which need not be there.

        Only when `capabilities.reads_files`. Raises NotFound.
        """
        return LOG_FILES

    async def close(self) -> None:
        """Removes what the service keeps for a stopped experiment as a whole. Called while entered."""

    async def clean(self, job_names: Sequence[str]) -> None:
        """Ends and removes all that is left of the experiment: these jobs, and every object with its id.

        Called of an instance that was not entered, perhaps long after the experiment was deleted. Of one that was
        entered, where jobs were given up while the service was away: it ends these jobs alone.
        """

    async def find_left(self, at_work: Collection[str], remove: Collection[str] | None) -> Sequence[LeftObject]:
        """Lists objects that experiments of any manager left, except those `at_work` (ids).

        `remove`: ids of experiments; their objects, except those that must stay, are removed, and only they are listed.
        None: nothing is removed.

        Called of an instance that was not entered, where the platform's description says `finds_left`.
        """
        return ()


_UNLIMITED = Room()
