"""The remote side of a platform, simulated: the class that a platform's author writes for the contract's tests."""

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
    """A feature that a world may lack, a key of `World.absent`; every world has all others."""

    # What the platform itself has

    #: Credentials that it can refuse.
    CREDENTIALS = "credentials"
    #: An observable time between accepted and running.
    PENDING = "pending"
    #: The exit code of a job that failed.
    EXIT_CODE = "exit code"
    #: Runners that post to the trial listener.
    PUSH = "push"
    #: Storage that jobs share with the manager, for results.
    STORAGE = "storage"
    #: Results through the adapter (`Host.deliver`), by any channel; absent if all of them are posted.
    RESULTS = "results"
    #: Logs that the adapter itself reads, if its capabilities say that it reads files.
    LOGS = "logs"
    #: Several machines that are reached separately.
    MACHINES = "machines"
    #: "No room now" as a result of `submit`; absent if the platform queues all jobs.
    ROOM = "room"
    #: Its own reasons why a job does not run yet.
    WAIT_REASONS = "wait reasons"
    #: Jobs that it accepts, will never start as they are, and names.
    HOPELESS_WAITS = "hopeless waits"
    #: Jobs of several processes.
    REPLICAS = "replicas"
    #: Users can end jobs by the platform's own means.
    PORTAL = "portal"
    #: A queue that gives the place of a running job to another, which the job's retries do not count.
    QUEUE = "queue"
    #: A time limit of its own, which ends jobs.
    TIME_LIMIT = "time limit"
    #: A notice to running jobs that it will take them away (SIGUSR1 to their runner).
    ENDING_NOTICE = "ending notice"
    #: It may end a job and run it again under its id.
    SECOND_RUN = "second run"
    #: It is polled, and may fail to list a job for a while.
    OVERLOOKED = "overlooked jobs"
    #: Foreign jobs with the name of one of ours: names are not unique, or others share the account.
    FOREIGN_JOBS = "foreign jobs"
    #: A connection, login or client that several experiments share.
    SHARED_CONNECTION = "shared connection"
    #: A rate limit of that connection.
    PACE = "pace"

    # What can be simulated or inspected; absent only for real services

    #: The number of calls that it received.
    CALLS = "calls"
    #: The list of its documented states.
    STATES = "states"
    #: An outage.
    OUTAGE = "outage"
    #: A job that is removed by others.
    VANISH = "vanish"
    #: A platform that accepts calls and does not answer.
    HANG = "hang"
    #: An accepted submission whose answer is lost.
    LOST_ANSWERS = "lost answers"
    #: A list of everything that exists of an experiment.
    TRACES = "traces"


class World(abc.ABC):
    """One platform and its remote side, for one test.

    Entered before and exited after the test; it must leave nothing. Methods named after an action of a job are called
    for accepted jobs, and return when it is done, whether or not the adapter has noticed.

    A method with "unless Feature.X is absent" is required if `absent` does not list X. Only the remote side is
    simulated: its methods act on the platform directly, bypassing the adapter.
    """

    #: Feature that the platform lacks → the reason, a sentence for the test's report.
    absent: ClassVar[Mapping[Feature, str]] = {}
    #: Maximum number of remote calls of one `observe`, for any number of handles.
    max_observe_calls: ClassVar[int] = 2
    #: The adapter's rate limit on `calls_seen`: (calls, seconds) of any window. Unless Feature.PACE is absent.
    pace: ClassVar[tuple[int, float]]
    #: Logins or connections that the platform sees for any number of experiments on one account.
    max_sessions: ClassVar[int] = 1
    #: Seconds within which every change is noticed.
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
        #: Texts that must not appear in any repr, log, report or error.
        self.secrets: tuple[str, ...] = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(  # noqa: B027 - most have nothing to end
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Ends every job and everything else that was started."""

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
        """An adapter of another experiment on the same account, with a host of `recorder`, which is one of
        `self.recorder.other` and shares its connections. Unless Feature.SHARED_CONNECTION is absent."""
        raise NotImplementedError

    def make_on_machines(self) -> Platform[Any]:
        """An adapter of a platform with two machines: the first two jobs run on one each; a third one, on either when
        those have ended. Unless Feature.MACHINES is absent."""
        raise NotImplementedError

    def make_replicated(self) -> Platform[Any]:
        """An adapter whose jobs have two identical processes. Unless Feature.REPLICAS is absent."""
        raise NotImplementedError

    @abc.abstractmethod
    def state_of(self, native: str) -> JobState:
        """The state for a native status in the adapter's table."""

    async def restart(self) -> None:  # noqa: B027 - most keep nothing
        """Discards what a process of the manager keeps in memory outside the adapter. No adapter is entered now."""

    # Jobs

    @abc.abstractmethod
    def job(self, trial_id: str) -> JobSpec:
        """A job that runs until it is ordered to end. The same spec for the same trial."""

    def job_of(self, recorder: Recorder, trial_id: str) -> JobSpec:
        """A job of another experiment, see `make_of` and `job`. Unless Feature.SHARED_CONNECTION is absent."""
        raise NotImplementedError

    def pushing_job(self, trial_id: str, command: str, runner_environment: Mapping[str, str]) -> JobSpec:
        """A job for `make_pushing` that starts at once. Unless Feature.PUSH is absent."""
        raise NotImplementedError

    async def begin(self, handle: JobHandle) -> None:  # noqa: B027 - most have started it
        """Makes the platform start an accepted job. If Feature.PENDING is absent, it has started already."""

    @abc.abstractmethod
    async def end(self, handle: JobHandle, exit_code: int) -> None:
        """Makes the running job end on its own."""

    async def vanish(self, handle: JobHandle) -> None:
        """Removes the job, and every trace of it, bypassing the adapter. Unless Feature.VANISH is absent."""
        raise NotImplementedError

    @abc.abstractmethod
    async def count(self, job_name: str) -> int:
        """The number of jobs of this name that the platform has started or will start; 0 for an unknown name.

        Foreign jobs (`plant`) do not count.
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
        """Makes the running job print a line, the only ones in `log_name`. Unless the adapter does not read files."""
        raise NotImplementedError

    async def report(self, handle: JobHandle, line: str) -> None:
        """Makes the running job add a line to its main outbox. Unless Feature.RESULTS is absent."""
        raise NotImplementedError

    async def arrived(self, handle: JobHandle, count: int, recorder: Recorder) -> list[str]:
        """The lines of the job's main outbox, as soon as it has that number. Override it if they are posted to a
        listener of the world; `recorder`: of the job's experiment."""
        return await recorder.until_lines(handle.job_name, protocol.MAIN_OUTBOX, count)

    async def report_from(self, handle: JobHandle, replica: int, line: str) -> None:
        """Makes one process of a job of `make_replicated` add a line to its main outbox. `replica` 0 is the one that
        the platform, or the runner by role and index, considers the reporting one, 1 is the other. Unless
        Feature.REPLICAS is absent."""
        raise NotImplementedError

    async def hold_back(self, handle: JobHandle, number: int) -> str:
        """Makes the platform state why the accepted job does not run yet, differently for each `number`, 0 and 1.

        Returns the parts that the user should read. Unless Feature.WAIT_REASONS is absent.
        """
        raise NotImplementedError

    async def strand(self, handle: JobHandle) -> str:
        """Makes the platform state that it will never start the accepted job as it is, until `begin` corrects that.

        Returns the parts that the user should read. Unless Feature.HOPELESS_WAITS is absent.
        """
        raise NotImplementedError

    async def cancel_in_portal(self, handle: JobHandle) -> None:
        """Ends the running job by the platform's own means, as a user would. Unless Feature.PORTAL is absent."""
        raise NotImplementedError

    async def displace(self, handle: JobHandle) -> None:
        """Gives the place of the running job to another as the queue intends. Unless Feature.QUEUE is absent."""
        raise NotImplementedError

    async def exceed_limit(self, handle: JobHandle) -> None:
        """Makes the platform's own time limit end the running job. Unless Feature.TIME_LIMIT is absent."""
        raise NotImplementedError

    async def announce_end(self, handle: JobHandle) -> None:
        """Makes the platform announce to the running job that it will take it away. Unless Feature.ENDING_NOTICE is
        absent."""
        raise NotImplementedError

    async def knows_of_end(self, handle: JobHandle) -> bool:
        """Whether the running job finds the file `protocol.ENDING_FILE` in its folder."""
        raise NotImplementedError

    async def run_again(self, handle: JobHandle) -> None:
        """Makes the platform end the running job and run it again under its id; returns when it runs. Unless
        Feature.SECOND_RUN is absent."""
        raise NotImplementedError

    async def overlook(self, handle: JobHandle, is_listed: bool) -> None:
        """Makes the platform fail to list the job, which runs on, or list it again (`is_listed`). Unless
        Feature.OVERLOOKED is absent."""
        raise NotImplementedError

    async def plant(self, spec: JobSpec) -> None:
        """Creates a foreign running job of this name: of another experiment, without our nonce, unknown to the adapter.
        Unless Feature.FOREIGN_JOBS is absent."""
        raise NotImplementedError

    async def is_planted(self, spec: JobSpec) -> bool:
        """Whether the job of `plant` exists and runs as before. Unless Feature.FOREIGN_JOBS is absent."""
        raise NotImplementedError

    def lag(self, lag: Lag) -> AbstractContextManager[LaggingStorage]:
        """A context in which the storage lags until it settles; `lagging_storage` does it for mounted folders."""
        raise NotImplementedError

    # The platform

    @property
    @abc.abstractmethod
    def remote_calls(self) -> int:
        """The number of calls that the platform received so far."""

    @property
    def calls_seen(self) -> Sequence[float]:
        """The times of all requests that the platform received so far, in seconds of any steady clock, from its log.

        Unless Feature.PACE is absent.
        """
        raise NotImplementedError

    @property
    def sessions_seen(self) -> int:
        """The number of logins, or of connections without a login, from the platform's log.

        Unless Feature.SHARED_CONNECTION is absent.
        """
        raise NotImplementedError

    async def start_outage(self) -> None:
        """Makes the platform unreachable from now on; its jobs continue. Unless Feature.OUTAGE is absent."""
        raise NotImplementedError

    async def end_outage(self) -> None:
        """Ends the outage."""
        raise NotImplementedError

    async def cut_off(self, handle: JobHandle) -> None:
        """Makes the machine of this job unreachable from now on, for an instance of `make_on_machines`; its job
        continues. Unless Feature.MACHINES is absent."""
        raise NotImplementedError

    async def reconnect(self, handle: JobHandle) -> None:
        """Ends `cut_off`: the machine is reachable again."""
        raise NotImplementedError

    async def start_shortage(self) -> None:
        """Leaves the platform no room for another job from now on (other users have it, a quota is used up); present
        jobs continue. Returns when a submission would find none. Unless Feature.ROOM is absent."""
        raise NotImplementedError

    async def end_shortage(self) -> None:
        """Ends the shortage: the platform has room again."""
        raise NotImplementedError

    async def start_hanging(self) -> None:
        """Makes the platform accept connections and calls, and answer none. Unless Feature.HANG is absent."""
        raise NotImplementedError

    async def end_hanging(self) -> None:
        """Ends the hanging: the platform answers again, and may still carry out earlier calls."""
        raise NotImplementedError

    async def lose_answer(self) -> None:
        """Loses the answer to the next submission, which is accepted. Unless Feature.LOST_ANSWERS is absent."""
        raise NotImplementedError

    async def traces(self, experiment_id: str) -> Collection[str]:
        """Everything that the platform has of an experiment, a line each: jobs in any state, uploaded code, volumes,
        configurations, folders. Without files in the experiment's own folder, and files that jobs wrote for their users
        on their storage. Unless Feature.TRACES is absent."""
        raise NotImplementedError


def unreachable_keeper() -> Keeper:
    """An unreachable keeper, for adapters that need none."""
    return Keeper(_refuse, name="absent")


async def _refuse(_make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
    raise ConnectionRefusedError("there is no keeper")
