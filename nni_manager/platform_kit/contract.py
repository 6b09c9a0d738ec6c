"""The contract of adapters: their verbs, and entering and leaving.

* An instance is one training service of one experiment. Enter and exit connect and disconnect, *leaving jobs running*.
  `close` comes before the last exit of an experiment that is stopped, `clean` when it is deleted.
* Everything may be called again at any time: after a crash the scheduler repeats what it cannot know.
* An adapter never decides: it reports what it sees. "Gone" (LOST) and "could not ask" (PlatformUnavailable for all
  jobs, `Observation.unreachable` for some) differ. The service's own word for an end is `Observation.native_reason`,
  which nothing is decided by; a table of the adapter makes a `cause` of the words for too little memory and for
  containers that could never be made, and of no others.
* `forget` may meet a job that still runs: what is decided need not have ended.
* Errors it may raise: SubmitRejected, PlatformUnavailable, BadCredentials. Anything else is a bug in the adapter.
  BadCredentials is tried again: after a minute of it, and nothing else, the service is on hold, and is tried once a
  minute, until a call is answered. A verb that takes longer than its time limit (`TIME_LIMITS_S`) is cancelled and
  counts as PlatformUnavailable.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Protocol, Self

from nni_manager.domain.attempt import Observation
from nni_manager.domain.experiment import ExperimentSpec, Json, PlatformSpec
from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.domain.service import Wait
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.private_text import PrivateText


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an adapter can do: declared, never found out by failing."""

    #: It hears of changes and calls `Host.wake`; `observe` answers from memory. Otherwise it is asked again and again.
    watches: bool
    #: `read_file` works.
    reads_files: bool
    #: A trial runner wraps the command inside the job and reports to the trial listener.
    has_runner: bool = False
    #: Nothing but the posts of that runner tells whether a job that was started still runs.
    lives_by_runner: bool = False
    #: The runner leaves results on storage that jobs share with us, for the adapter to read, at least where it must.
    is_read: bool = False
    #: The code directory is packed and sent; otherwise jobs see it where it is.
    ships_code: bool = False
    #: Something of an experiment stays there when all is forgotten and closed, as what trials wrote for their users:
    #: `clean` removes it when the experiment is deleted.
    leaves_files: bool = False
    #: The platform starts ended processes of a job again by itself: its word, not the runner's, ends an attempt.
    platform_decides: bool = False
    #: People can stop jobs there: an end by a signal that nobody here sent waits for the platform's word.
    has_portal: bool = False
    #: Seconds for which a job may be unreachable before it counts as lost; None: for ever.
    unreachable_grace_s: float | None = None
    #: Longest wait between two rounds of `observe`, in seconds.
    slow_poll_s: float = 30.0

    @property
    def expects_runner(self) -> bool:
        """Whether a job that ends well without a word of its runner leaves a doubt."""
        return self.has_runner or self.is_read


#: Verb → seconds after which a call of it is given up; a submission that was given up may have been taken. Of an
#: experiment that is deleted, `clean` removes all that its trials wrote.
TIME_LIMITS_S: Mapping[str, float] = {
    "enter": 30.0,
    "preflight": 15.0,
    "plan": 15.0,
    "submit": 60.0,
    "observe": 30.0,
    "cancel": 30.0,
    "forget": 30.0,
    "read_file": 30.0,
    "close": 30.0,
    "clean": 30.0,
    "clean for good": 600.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The number of further jobs that the service would take now; a hint: `submit` may still find no room."""

    #: The number of jobs that there is room for; None: as many as one likes.
    free: int | None = None
    #: When there is none, or less than there could be: why.
    why: Wait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRoom:
    """An answer of `submit`: the job was not taken, which is no attempt; it is submitted again when room changes."""

    why: Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The places of jobs if they were submitted now, as far as the service decides that itself."""

    #: One for each job that would start at once, in words, e.g. ``hostA, gpu 0``.
    places: Sequence[str]
    #: Machine → why no job more goes there, one sentence; of those that take no more.
    why_not: Mapping[str, str] = field(default_factory=dict)


class Severity(StrEnum):
    """The consequence of a preflight finding for the experiment."""

    #: The experiment cannot work: refused credentials, an unknown cluster, a missing right. Refuses `create`.
    WRONG = "wrong"
    #: The far side cannot be asked now; the experiment waits.
    AWAY = "away"
    #: The experiment works, but somebody should know.
    WARNING = "warning"
    #: Looked at and found well.
    FINE = "fine"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightFinding:
    """One finding of `preflight`."""

    severity: Severity
    #: What was looked at, e.g. ``hostA: login`` or ``TFJob``.
    subject: str
    #: What was found, one sentence.
    sentence: str
    #: What to do about it; empty when nothing is.
    fix: str = ""
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftObject:
    """Something at a service that an experiment made, as it says of itself."""

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

        `container`: the one that the lines are of, where it has an identity; nothing is taken of one after which
        another has greeted.

        `ended`: these lines are the last of the job, which has ended so; its end need not be observed any more, unless
        the lines are to be sent again.
        """


class Greet(Protocol):
    """The function by which an adapter passes on what a runner says of itself that does not post, but is read."""

    def __call__(
        self,
        job_name: str,
        runner_version: str | None,
        channel: str,
        *,
        container: str = "",
        outboxes: Mapping[str, int] | None = None,
    ) -> Awaitable[None]:
        """Passes a greeting on. `container`: its identity; `outboxes`: bytes of each found at its start, None: not
        told.

        The newest container counts: where it found less than is stored, offsets begin at 0 again. Raises
        VersionRefused, and AttemptDecided for a container after which another one has greeted.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The scheduler as an adapter sees it: whom to wake, where to deliver, what is shared."""

    experiment_id: str
    #: The training service's name in the experiment, ``openpai`` or ``openpai-2``.
    service: str
    #: Something about this job changed: observe it. Any number of calls is fine.
    wake: Callable[[str], None]
    deliver: Deliver
    #: Accepted, undecided jobs, and those named → bytes stored so far of each of their outboxes.
    followed: Callable[[Sequence[str]], Awaitable[Mapping[str, Mapping[str, int]]]]
    #: What experiments share: the keeper of this machine, accounts and clusters elsewhere, and places of machines.
    connections: Connections
    #: The experiment's folder; what an adapter keeps there lies in a folder of the service's name.
    folder: Path
    #: The packed code directory, a tar.gz. Raises InvalidInput or OSError.
    code: Callable[[], Awaitable[Path]]
    greet: Greet
    #: (job name, word): how its command ended; as `domain.evidence.RunnerExit` reads it.
    exited: Callable[[str, str], Awaitable[None]]
    #: What the adapter keeps that nobody else may have, such as passwords; all of it is one text, empty at first.
    private: PrivateText = field(default_factory=PrivateText)
    #: The section `sharedStorage` as it is now, secrets in place; None: the experiment has none.
    shared_storage: Callable[[], Json | None] = lambda: None
    #: The part of the names of the experiment's folders on storage that nobody can guess, 24 hex digits; empty: an
    #: earlier version made the experiment, and they lack it.
    storage_key: str = ""
    #: Bytes of the logs that are kept of one attempt.
    max_log_bytes: int = 100 * 2**20
    #: For how many seconds the trial listener has heard nothing of the job's runner; None: it does not listen yet.
    silence_s: Callable[[str], float | None] = lambda job_name: None


class Platform(abc.ABC):
    """An adapter: one training service of one experiment."""

    #: Set on the class, unless they depend on the settings.
    capabilities: Capabilities
    #: Fields of the section that may be changed while the experiment runs, in camelCase: an instance with the old
    #: values is left and one with the new ones entered, whose jobs are still those of the old one. Secrets, and what
    #: is the scheduler's (`trialConcurrency`), may always be.
    changeable: ClassVar[frozenset[str]] = frozenset()
    #: Kinds of `sharedStorage` that its jobs work on. An adapter that names some goes by `Host.shared_storage`.
    mounts: ClassVar[frozenset[str]] = frozenset()
    #: What users write in place of `sharedStorage`, of an adapter with no `mounts`.
    instead_of_shared_storage: ClassVar[str] = ""

    def __init__(self, settings: Json, host: Host) -> None:
        """Makes an adapter that is not entered. Must not touch the network.

        `settings`: the section of the config, canonical, secrets in place: never log them.
        """
        self.settings = settings
        self.host = host
        self.capabilities = self.capabilities_for(settings)

    def renew(self, settings: Json) -> None:
        """Takes the same settings with other secrets, for the next calls.

        An adapter that keeps something of the settings overrides this.
        """
        self.settings = settings

    @classmethod
    def capabilities_for(cls, settings: Json) -> Capabilities:
        """The capabilities of an instance with these settings."""
        return cls.capabilities

    @classmethod
    def connection_key(cls, settings: Json) -> str:
        """The identity of the far side, without secrets: jobs that were left there are ended by whoever reaches it
        next. `settings`: as of an instance."""
        return str(settings.get("platform", ""))

    @classmethod
    def check(cls, spec: ExperimentSpec, service: PlatformSpec) -> None:
        """Refuses what this adapter cannot do as `service`, before anything is created. Raises InvalidInput."""
        return None

    async def preflight(self) -> Sequence[PreflightFinding]:
        """Looks whether jobs could run, before the first one, without leaving anything. May be called before entering.

        Raises nothing on purpose: what cannot be asked is a finding.
        """
        return ()

    async def __aenter__(self) -> Self:
        """Connects. May raise PlatformUnavailable or BadCredentials, and is then tried again."""
        return self

    async def __aexit__(  # noqa: B027 (nothing to do is a fair answer)
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Disconnects; jobs run on. No task, thread, file or connection is left."""

    def try_again(self) -> None:  # noqa: B027 (only where refusals are waited out)
        """Tries at once what was refused, as a person may have put it right. Called while entered."""

    def room(self) -> Room:
        """The room for more jobs, from memory, at once; `Host.wake("")` says that it changed."""
        return _UNLIMITED

    def want(self, jobs: int) -> None:  # noqa: B027 (only where experiments stand in a line for room)
        """Notes that so many trials wait for room at the service, 0: none any more. Called when the number changes."""

    async def plan(self, jobs: int) -> JobPlan | None:
        """The places of so many jobs if they were submitted now, reserving nothing; None: the service does not say.

        Called while entered.
        """
        return None

    @abc.abstractmethod
    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        """Submits a job; returns when it is accepted. The same name (and nonce) twice is the same job.

        Raises SubmitRejected, or PlatformUnavailable; its `refused` says whether the job was certainly not taken.
        """

    @abc.abstractmethod
    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        """Reports on all these jobs, in a bounded number of remote calls. A missing job is LOST.

        Never called without handles.
        """

    @abc.abstractmethod
    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        """Asks the jobs to end; quiet for finished and unknown ones. Their ends are observed later."""

    @abc.abstractmethod
    async def forget(self, handles: Sequence[JobHandle]) -> None:
        """Removes what the platform keeps of jobs whose attempt is decided; quiet for unknown ones.

        A job may still run: its runner's word decided, or it was called lost. It is ended then, and nobody asks for its
        end any more.
        """

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` (negative: from the end) of a file in the attempt's folder.

        Only when `capabilities.reads_files`. Raises NotFound.
        """
        raise NotImplementedError

    async def close(self) -> None:  # noqa: B027 (most services keep nothing of an experiment)
        """Removes what the service keeps for a stopped experiment as a whole. Called while entered."""

    async def clean(self, job_names: Sequence[str]) -> None:  # noqa: B027
        """Ends and removes whatever is left of the experiment: these jobs, and what else is found by its id.

        Called of an instance that was not entered, perhaps long after the experiment was deleted.
        """

    async def find_left(self, at_work: Collection[str], remove: Collection[str] | None) -> Sequence[LeftObject]:
        """Finds what any manager's experiments left, but those `at_work` (ids); removes it of those in `remove`, where
        it does not have to stay, and answers that alone. None: it answers all, and removes nothing.

        Called of an instance that was not entered, where the platform's description says `finds_left`.
        """
        return ()


_UNLIMITED = Room()
