"""What an adapter promises: five verbs, and entering and leaving.

* Enter and exit connect and disconnect, *leaving jobs running*. An experiment enters its own instance.
* Everything may be called again at any time: after a crash the scheduler repeats what it cannot know.
* An adapter never decides: it reports what it sees. "Gone" (LOST) and "could not ask" (PlatformUnavailable) differ.
* `forget` may meet a job that still runs: what is decided need not have ended.
* Errors it may raise: SubmitRejected, PlatformUnavailable, BadCredentials. Anything else is a bug in the adapter.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from nni_manager.domain.experiment import ExperimentSpec, Json
from nni_manager.domain.job import JobHandle, JobReport, JobSpec
from nni_manager.platform_kit.keeper_client import Keeper


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Declared, never found out by failing."""

    #: It hears of changes and calls `Host.wake`; `observe` answers from memory. Otherwise it is asked again and again.
    watches: bool
    #: `read_file` works.
    reads_files: bool
    #: A trial runner wraps the command inside the job and reports to the trial listener.
    has_runner: bool = False
    #: The code directory is packed and sent; otherwise jobs see it where it is.
    ships_code: bool = False
    #: Longest wait between two rounds of `observe`, in seconds.
    slow_poll_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """`resend`: something before these lines is missing; send again from the stored offsets."""

    resend: bool


class Deliver(Protocol):
    """Hands over complete lines of one outbox."""

    def __call__(
        self, job_name: str, outbox: str, start: int, end: int, lines: Sequence[str], ended: JobReport | None = None
    ) -> Awaitable[Delivery]:
        """Awaitable until they are stored. `start`, `end`: their place in the outbox, in bytes.

        `ended`: these lines are the last of the job, which has ended so; its end need not be observed any more, unless
        the lines are to be sent again.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the scheduler lends an adapter."""

    experiment_id: str
    #: Something about this job changed: observe it. Any number of calls is fine.
    wake: Callable[[str], None]
    deliver: Deliver
    #: Accepted, undecided jobs, and those named → bytes stored so far of each of their outboxes.
    followed: Callable[[Sequence[str]], Awaitable[Mapping[str, Mapping[str, int]]]]
    #: The keeper of this machine.
    keeper: Keeper
    #: The experiment's folder; what an adapter keeps there lies in a folder of the adapter's name.
    folder: Path
    #: The packed code directory, a tar.gz. Raises InvalidInput or OSError.
    code: Callable[[], Awaitable[Path]]
    #: (job name, version, channel): what a runner that is read, not heard, says of itself. Raises VersionRefused.
    greet: Callable[[str, str | None, str], Awaitable[None]]
    #: (job name, word): how its command ended; as `domain.evidence.RunnerWord` reads it.
    exited: Callable[[str, str], Awaitable[None]]


class Platform(abc.ABC):
    """One training service of one experiment."""

    #: Set on the class, unless they depend on the settings.
    capabilities: Capabilities

    def __init__(self, settings: Json, host: Host) -> None:
        """`settings`: the section of the config, canonical, secrets in place: never log them. Must not touch the
        network."""
        self.settings = settings
        self.host = host
        self.capabilities = self.capabilities_for(settings)

    def renew(self, settings: Json) -> None:
        """The same settings with other secrets, for the next calls. An adapter that keeps something of them overrides
        this."""
        self.settings = settings

    @classmethod
    def capabilities_for(cls, settings: Json) -> Capabilities:
        """What an instance with these settings can do."""
        return cls.capabilities

    @classmethod
    def check(cls, spec: ExperimentSpec) -> None:
        """Refuses what this adapter cannot do, before anything is created. Raises InvalidInput."""
        return None

    async def __aenter__(self) -> Self:
        """Connects. May raise PlatformUnavailable or BadCredentials."""
        return self

    async def __aexit__(  # noqa: B027 (nothing to do is a fair answer)
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Disconnects; jobs run on. No task, thread, file or connection is left."""

    @abc.abstractmethod
    async def submit(self, spec: JobSpec) -> JobHandle:
        """Returns when the job is accepted. The same name twice is the same job.

        Raises PlatformUnavailable; its `refused` says whether the job was certainly not taken.
        """

    @abc.abstractmethod
    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, JobReport]:
        """What is known of all these jobs, in a bounded number of remote calls. A missing job is LOST."""

    @abc.abstractmethod
    async def cancel(self, handle: JobHandle, grace_period_s: float) -> None:
        """Asks the job to end; quiet for finished and unknown jobs. Its end is observed later."""

    @abc.abstractmethod
    async def forget(self, handles: Sequence[JobHandle]) -> None:
        """Removes what the platform keeps of jobs whose attempt is decided; quiet for unknown ones.

        One may still run: its runner's word decided, or it was called lost. It is ended then, and its end is nobody's
        concern any more.
        """

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` (negative: from the end) of a file in the attempt's folder.

        Only when `capabilities.reads_files`. Raises NotFound.
        """
        raise NotImplementedError
