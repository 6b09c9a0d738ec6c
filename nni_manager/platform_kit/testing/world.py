"""The far side of a platform, played on demand: the class that a platform's author writes to have the contract
tested."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from types import TracebackType
from typing import Any, ClassVar, Self

from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.machines.keeper.client import Keeper
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing.lagging_storage import Lag, LaggingStorage
from nni_manager.platform_kit.testing.recorder import Recorder
from trial_runner import protocol


class Feature(StrEnum):
    """A feature that a world may do without, a key of `World.absent`; all else every world has."""

    # What the platform itself has

    #: Credentials that it can refuse.
    CREDENTIALS = "credentials"
    #: A time between accepted and running that can be seen.
    PENDING = "pending"
    #: The exit code of a job that failed.
    EXIT_CODE = "exit code"
    #: Runners that post to the trial listener.
    PUSH = "push"
    #: Storage that jobs share with us, through which their results come.
    STORAGE = "storage"
    #: Results that come through the adapter (`Host.deliver`), whatever way; absent where all of them are posted.
    RESULTS = "results"
    #: Logs that the adapter itself reads, where its capabilities say that it reads files.
    LOGS = "logs"
    #: Several machines that are reached each on its own.
    MACHINES = "machines"
    #: "No room now" as an answer of `submit`; absent where the platform queues whatever it is given.
    ROOM = "room"
    #: Its own words about why a job does not run yet.
    WAIT_REASONS = "wait reasons"
    #: Jobs of several processes.
    REPLICAS = "replicas"
    #: Users can end jobs by the platform's own means.
    PORTAL = "portal"
    #: Jobs of others under the name of one of ours: names mean nothing there, or others share the account.
    FOREIGN_JOBS = "foreign jobs"
    #: A connection, login or client that several experiments share.
    SHARED_CONNECTION = "shared connection"
    #: A limit to how often that connection asks.
    PACE = "pace"

    # What can be played or looked at; absent for real services alone

    #: A count of the questions that it was asked.
    CALLS = "calls"
    #: The list of its documented states.
    STATES = "states"
    #: An outage.
    OUTAGE = "outage"
    #: A job that is removed behind our back.
    VANISH = "vanish"
    #: A platform that takes questions and does not answer.
    HANG = "hang"
    #: A submission that is taken, and its answer lost.
    LOST_ANSWERS = "lost answers"
    #: A look at what is there of an experiment.
    TRACES = "traces"


class World(abc.ABC):
    """One platform with all that is behind it, for one test.

    Entered before and left after the test; nothing of it may be left then. Methods named after what a job does are
    called for jobs that were accepted, and return when it is done, whether or not the adapter has noticed.

    A method that says "unless Feature.X is absent" is needed where `absent` does not name X. Only the far side is
    played: its methods act on the platform directly, past the adapter.
    """

    #: Feature that the platform lacks → the reason, a sentence for the test's report.
    absent: ClassVar[Mapping[Feature, str]] = {}
    #: Remote calls that one `observe` may take, however many handles it is given.
    max_observe_calls: ClassVar[int] = 2
    #: The adapter's limit on `calls_seen`: (calls, seconds) of any window. Unless Feature.PACE is absent.
    pace: ClassVar[tuple[int, float]]
    #: Logins or connections that the platform sees of any number of experiments on one account.
    max_sessions: ClassVar[int] = 1
    #: Seconds within which everything is noticed.
    patience_s: ClassVar[float] = 20.0
    #: A file of `read_file` that `write_log` adds to.
    log_name: ClassVar[str] = "stdout"
    #: Files of the code directory: name → text.
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

    async def __aexit__(  # noqa: B027 - most have nothing to end
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Ends every job and whatever else was started."""

    # The adapter

    @abc.abstractmethod
    def make(self) -> Platform[Any]:
        """A new adapter of the platform, not entered, with a host of `recorder`."""

    def make_unauthorised(self) -> Platform[Any]:
        """An adapter with wrong credentials; they are among `secrets`. Unless Feature.CREDENTIALS is absent."""
        raise NotImplementedError

    def make_pushing(self) -> Platform[Any]:
        """An adapter with runners that post to the trial listener. Unless Feature.PUSH is absent."""
        raise NotImplementedError

    def make_of(self, recorder: Recorder) -> Platform[Any]:
        """An adapter of another experiment on the same account: with a host of `recorder`, which is one of
        `self.recorder.other` and shares its connections. Unless Feature.SHARED_CONNECTION is absent."""
        raise NotImplementedError

    def make_on_machines(self) -> Platform[Any]:
        """An adapter of a platform with two machines: the first two jobs run on one each; a third one, on either
        when those have ended. Unless Feature.MACHINES is absent."""
        raise NotImplementedError

    def make_replicated(self) -> Platform[Any]:
        """An adapter with jobs of two processes that do the same. Unless Feature.REPLICAS is absent."""
        raise NotImplementedError

    @abc.abstractmethod
    def state_of(self, native: str) -> JobState:
        """The state that a native status stands for in the adapter's table."""

    async def restart(self) -> None:  # noqa: B027 - most keep nothing
        """Loses what a process of the manager keeps in memory beside the adapter. No adapter is entered now."""

    # Jobs

    @abc.abstractmethod
    def job(self, trial_id: str) -> JobSpec:
        """A job that runs until it is told to end. The same spec for the same trial."""

    def job_of(self, recorder: Recorder, trial_id: str) -> JobSpec:
        """A job of another experiment, see `make_of` and `job`. Unless Feature.SHARED_CONNECTION is absent."""
        raise NotImplementedError

    def pushing_job(self, trial_id: str, command: str, runner_environment: Mapping[str, str]) -> JobSpec:
        """A job for `make_pushing` that starts at once. Unless Feature.PUSH is absent."""
        raise NotImplementedError

    async def begin(self, handle: JobHandle) -> None:  # noqa: B027 - most have started it
        """Has the platform start an accepted job. Where Feature.PENDING is absent it has been started already."""

    @abc.abstractmethod
    async def end(self, handle: JobHandle, exit_code: int) -> None:
        """Has the running job end by itself."""

    async def vanish(self, handle: JobHandle) -> None:
        """Removes the job, and every trace of it, past the adapter. Unless Feature.VANISH is absent."""
        raise NotImplementedError

    @abc.abstractmethod
    async def count(self, job_name: str) -> int:
        """The number of jobs of this name that the platform has started or will start; 0 for one never heard of.

        Those of others (`plant`) do not count.
        """

    @abc.abstractmethod
    async def environment(self, handle: JobHandle) -> Mapping[str, str]:
        """The variables that the running job sees."""

    @abc.abstractmethod
    async def code_file(self, handle: JobHandle, name: str) -> str:
        """A file of the code directory, as the running job reads it."""

    @abc.abstractmethod
    async def parameter_record(self, handle: JobHandle) -> str:
        """The record of the job's parameters, as the running job reads it."""

    async def write_log(self, handle: JobHandle, line: str) -> None:
        """Has the running job print a line, the only ones in `log_name`. Unless the adapter does not read files."""
        raise NotImplementedError

    async def report(self, handle: JobHandle, line: str) -> None:
        """Has the running job add a line to its main outbox. Unless Feature.RESULTS is absent."""
        raise NotImplementedError

    async def arrived(self, handle: JobHandle, count: int, recorder: Recorder) -> list[str]:
        """The lines of the job's main outbox, as soon as there are so many. Override where they are posted to a
        listener of the world's own; `recorder`: of the job's experiment."""
        return await recorder.until_lines(handle.job_name, protocol.MAIN_OUTBOX, count)

    async def report_from(self, handle: JobHandle, replica: int, line: str) -> None:
        """Has one process of a job of `make_replicated` add a line to its main outbox. `replica` 0 is the one that
        the platform, or the runner by its role and index, takes for the reporting one, 1 is the other. Unless
        Feature.REPLICAS is absent."""
        raise NotImplementedError

    async def hold_back(self, handle: JobHandle, number: int) -> str:
        """Has the platform say why the accepted job does not run yet: something else for each `number`, 0 and 1.

        Answers those of its words that the user is to read. Unless Feature.WAIT_REASONS is absent.
        """
        raise NotImplementedError

    async def cancel_in_portal(self, handle: JobHandle) -> None:
        """Ends the running job with the platform's own means, as a person would. Unless Feature.PORTAL is absent."""
        raise NotImplementedError

    async def plant(self, spec: JobSpec) -> None:
        """Makes a running job of this name that is not ours: of another experiment, without our nonce, and not seen
        by the adapter. Unless Feature.FOREIGN_JOBS is absent."""
        raise NotImplementedError

    async def is_planted(self, spec: JobSpec) -> bool:
        """Whether the job that `plant` has made is there and runs as before. Unless Feature.FOREIGN_JOBS is absent."""
        raise NotImplementedError

    def lag(self, lag: Lag) -> AbstractContextManager[LaggingStorage]:
        """A context in which the storage lags until it settles; `lagging_storage` does it for mounted folders."""
        raise NotImplementedError

    # The platform

    @property
    @abc.abstractmethod
    def remote_calls(self) -> int:
        """The number of questions that the platform was asked so far."""

    @property
    def calls_seen(self) -> Sequence[float]:
        """The moments of all requests that the platform got so far, in seconds of any steady clock, by its own log.

        Unless Feature.PACE is absent.
        """
        raise NotImplementedError

    @property
    def sessions_seen(self) -> int:
        """The number of logins, or of connections where there is no login, by the platform's own log.

        Unless Feature.SHARED_CONNECTION is absent.
        """
        raise NotImplementedError

    async def start_outage(self) -> None:
        """Makes the platform unreachable from now on; its jobs run on. Unless Feature.OUTAGE is absent."""
        raise NotImplementedError

    async def end_outage(self) -> None:
        """Ends the outage: the platform can be reached again."""
        raise NotImplementedError

    async def cut_off(self, handle: JobHandle) -> None:
        """Makes the machine of this job unreachable from now on, of an instance of `make_on_machines`; its job runs
        on. Unless Feature.MACHINES is absent."""
        raise NotImplementedError

    async def reconnect(self, handle: JobHandle) -> None:
        """Ends what `cut_off` began: the machine can be reached again."""
        raise NotImplementedError

    async def start_shortage(self) -> None:
        """Leaves the platform no room for another job from now on (other users have it, a quota is used up); it
        runs what it has. Returns when a submission would find none. Unless Feature.ROOM is absent."""
        raise NotImplementedError

    async def end_shortage(self) -> None:
        """Ends the shortage: the platform has room again."""
        raise NotImplementedError

    async def start_hanging(self) -> None:
        """Makes the platform take connections and questions, and answer none. Unless Feature.HANG is absent."""
        raise NotImplementedError

    async def end_hanging(self) -> None:
        """Ends the hanging: the platform answers again; what was asked meanwhile it may still do."""
        raise NotImplementedError

    async def lose_answer(self) -> None:
        """Loses the answer to the next submission, which is taken. Unless Feature.LOST_ANSWERS is absent."""
        raise NotImplementedError

    async def traces(self, experiment_id: str) -> Collection[str]:
        """Everything that the platform holds of an experiment, a line each: jobs in any state, uploaded code, volumes,
        configurations, folders. Not files in the experiment's own folder, nor those that jobs wrote for their users on
        storage of theirs. Unless Feature.TRACES is absent."""
        raise NotImplementedError


def unreachable_keeper() -> Keeper:
    """A keeper that cannot be reached, for adapters that need none."""
    return Keeper(_refuse, name="absent")


async def _refuse(_make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
    raise ConnectionRefusedError("there is no keeper")
