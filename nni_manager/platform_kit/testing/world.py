"""What a platform's author writes to have the contract tested: the far side of the platform, played on demand."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from types import TracebackType
from typing import ClassVar, Self

from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.keeper_client import Keeper
from nni_manager.platform_kit.testing.lagging_storage import Lag, LaggingStorage
from nni_manager.platform_kit.testing.recorder import Recorder


class Feature(StrEnum):
    """What a platform may do without."""

    #: Somebody to whom it can refuse access.
    CREDENTIALS = "credentials"
    #: A time between accepted and running that can be seen.
    PENDING = "pending"
    #: The exit code of a job that failed.
    EXIT_CODE = "exit code"
    #: Runners that post to the trial listener.
    PUSH = "push"
    #: Storage that jobs share with us, through which their results come.
    STORAGE = "storage"


class World(abc.ABC):
    """One platform with all that is behind it, for one test.

    Entered before and left after the test; nothing of it may be left then. Methods named after what a job does are
    called for jobs that were accepted, and return when it is done, whether or not the adapter has noticed.
    """

    #: What the platform does without → why, in a sentence for the test's report.
    absent: ClassVar[Mapping[Feature, str]] = {}
    #: Remote calls that one `observe` may take, however many handles it is given.
    max_observe_calls: ClassVar[int] = 2
    #: Seconds within which everything is noticed.
    patience_s: ClassVar[float] = 20.0
    #: A file of `read_file` that `write_log` adds to.
    log_name: ClassVar[str] = "stdout"
    #: What the code directory holds: name → text.
    code_files: ClassVar[Mapping[str, str]] = {"greeting.txt": "hello from the code directory\n"}
    #: Every native status that the platform's documentation names.
    native_states: ClassVar[Collection[str]]

    def __init__(self) -> None:
        #: The scheduler's side.
        self.recorder = Recorder()
        #: Texts that must stand in no repr, log, report or error.
        self.secrets: tuple[str, ...] = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(  # noqa: B027
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Ends every job and whatever else was started."""

    # The adapter

    @abc.abstractmethod
    def make(self) -> Platform:
        """A new instance, not entered, with a host of `recorder`."""

    def make_unauthorised(self) -> Platform:
        """The same with wrong credentials; they are among `secrets`. Unless Feature.CREDENTIALS is absent."""
        raise NotImplementedError

    def make_pushing(self) -> Platform:
        """As `make`, with runners that post to the trial listener. Unless Feature.PUSH is absent."""
        raise NotImplementedError

    @abc.abstractmethod
    def state_of(self, native: str) -> JobState:
        """The adapter's table of states."""

    async def restart(self) -> None:  # noqa: B027
        """Loses what a process of the manager keeps in memory beside the adapter. No adapter is entered now."""

    # Jobs

    @abc.abstractmethod
    def job(self, trial_id: str) -> JobSpec:
        """A job that runs until it is told to end. The same spec for the same trial."""

    def pushing_job(self, trial_id: str, command: str, runner_environment: Mapping[str, str]) -> JobSpec:
        """A job for `make_pushing` that starts at once. Unless Feature.PUSH is absent."""
        raise NotImplementedError

    async def begin(self, handle: JobHandle) -> None:  # noqa: B027
        """The platform starts an accepted job. Where Feature.PENDING is absent it has been started already."""

    @abc.abstractmethod
    async def end(self, handle: JobHandle, exit_code: int) -> None:
        """The running job ends by itself."""

    @abc.abstractmethod
    async def vanish(self, handle: JobHandle) -> None:
        """Somebody removes the job, and every trace of it, behind our back."""

    @abc.abstractmethod
    async def count(self, job_name: str) -> int:
        """How many jobs of this name the platform has started or will start."""

    @abc.abstractmethod
    async def environment(self, handle: JobHandle) -> Mapping[str, str]:
        """The variables that the running job sees."""

    @abc.abstractmethod
    async def code_file(self, handle: JobHandle, name: str) -> str:
        """A file of the code directory, as the running job reads it."""

    @abc.abstractmethod
    async def parameter_record(self, handle: JobHandle) -> str:
        """The record of its parameters, as the running job reads it."""

    async def write_log(self, handle: JobHandle, line: str) -> None:
        """The running job prints a line, the only ones in `log_name`. Unless the adapter does not read files."""
        raise NotImplementedError

    async def report(self, handle: JobHandle, line: str) -> None:
        """The running job adds a line to its main outbox. Unless Feature.STORAGE is absent."""
        raise NotImplementedError

    def lag(self, lag: Lag) -> AbstractContextManager[LaggingStorage]:
        """The storage lags from now on, until it settles. See `lagging_storage`, which does it for mounted folders."""
        raise NotImplementedError

    # The platform

    @property
    @abc.abstractmethod
    def remote_calls(self) -> int:
        """Questions asked of the platform so far."""

    @abc.abstractmethod
    async def start_outage(self) -> None:
        """The platform cannot be reached from now on; its jobs run on."""

    @abc.abstractmethod
    async def end_outage(self) -> None:
        """It can be reached again."""


def unreachable_keeper() -> Keeper:
    """For adapters that need none."""
    return Keeper(_refuse, name="absent")


async def _refuse(_make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
    raise ConnectionRefusedError("there is no keeper")
