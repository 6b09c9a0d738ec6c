"""The start of a job. What must be true after a crash at any point decides the order.

Folder, claim on the name, files, process, its start time, and that into the state file. Whatever fails is
taken back, the claim last, so that the same name can be tried again.
"""

import os
import signal
import time
from contextlib import ExitStack, contextmanager
from typing import Callable, Iterator, Tuple

from trial_runner import processes, protocol
from trial_runner.keeper.jobs import attempt_folder, process_tags
from trial_runner.keeper.jobs.files import Claim, MainProcess, StateFiles
from trial_runner.keeper.jobs.job import Job
from trial_runner.keeper.serving.requests import Refusal, SpawnRequest, system_refusal
from trial_runner.launch import Streams, launch
from trial_runner.wire.foreign_files import OpenFolder


class Spawn:
    """Starts jobs. `job_umask`: umask of their processes; the keeper's own files are private."""

    def __init__(self, state_files: StateFiles, boot_id: str, job_umask: int, log: Callable[[str], None]) -> None:
        self._state_files = state_files
        self._boot_id = boot_id
        self._job_umask = job_umask
        self._log = log
        self._null = os.open(os.devnull, os.O_RDWR)
        stat = processes.read_stat(os.getpid())
        assert stat is not None, "this process has a stat line"
        self._start_ticks = stat.start_ticks

    def start(self, request: SpawnRequest) -> Job:
        """A job that runs; recording its main process is left to the caller. Raises Refusal, leaving nothing behind."""
        _check_directory(request.directory)
        try:
            with ExitStack() as undo:
                job = self._start(request, undo)
                undo.pop_all()
        except OSError as error:
            raise system_refusal(error, "Starting job {}".format(request.name)) from error
        except ValueError as error:
            # Null characters or an '=' in a variable's name, characters that are no UTF-8. The texts hold no values.
            message = "Starting job {} failed: its environment or a file has illegal text ({}).".format(
                request.name, type(error).__name__
            )
            raise Refusal(protocol.INVALID, message) from error
        return job

    def _start(self, request: SpawnRequest, undo: ExitStack) -> Job:
        processes.require_one(self._null)
        job = Job(self._claim_of(request), self._log)
        attempt_folder.make(request.attempt_directory, undo)
        if request.checkpoint:
            attempt_folder.make(request.checkpoint, undo)
        self._claim(job.claim)
        undo.callback(self._state_files.remove, job.name)
        with OpenFolder(request.attempt_directory) as folder:
            pid, started_ms = self._start_in(folder, job.claim, request, undo)
        undo.callback(_abandon, pid)
        # Two descriptors were closed just now, so this process has one left.
        job.pidfd = processes.open_pidfd(pid)
        undo.callback(os.close, job.pidfd)
        stat = processes.read_stat(pid)
        assert stat is not None, "a child that was not reaped has a stat line"
        job.main = MainProcess(pid, stat.start_ticks, started_ms)
        job.is_child = True
        return job

    def _start_in(self, folder: OpenFolder, claim: Claim, request: SpawnRequest, undo: ExitStack) -> Tuple[int, int]:
        """The pid, and when it was started."""
        attempt_folder.fill(folder, request.files, undo)
        with ExitStack() as outputs:
            streams = [self._null]
            for name in (protocol.STDOUT_FILE, protocol.STDERR_FILE):
                streams.append(attempt_folder.open_output(folder, name, undo))
                outputs.callback(os.close, streams[-1])
            return self._run(request, claim, Streams(*streams))

    def _claim(self, claim: Claim) -> None:
        try:
            self._state_files.claim(claim)
        except FileNotFoundError as error:
            sentence = (
                "Starting job {} failed: the keeper's own folder was deleted. Jobs are started again, by another"
                " keeper, as soon as those that run here have ended."
            ).format(claim.name)
            raise Refusal(protocol.UNAVAILABLE, sentence) from error

    def _claim_of(self, request: SpawnRequest) -> Claim:
        return Claim(
            name=request.name,
            owner=request.owner,
            tag=process_tags.new_tag(),
            attempt_directory=request.attempt_directory,
            boot_id=self._boot_id,
            grace_s=request.grace_s,
            keeper_pid=os.getpid(),
            keeper_start_ticks=self._start_ticks,
            reservation=request.reservation,
        )

    def _run(self, request: SpawnRequest, claim: Claim, streams: Streams) -> Tuple[int, int]:
        environment = dict(request.environment)
        environment[protocol.ENV_JOB] = process_tags.tag_variable(claim.name, claim.tag)
        started_ms = time.time_ns() // 1000000
        with process_tags.tagged(claim.tag), _umask(self._job_umask):
            return launch(request.command, request.directory, environment, streams), started_ms


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _check_directory(directory: str) -> None:
    if not os.path.isdir(directory):
        raise Refusal(
            protocol.REJECTED,
            "The working directory {} does not exist or is no folder: create it or correct codeDir.".format(directory),
        )
    if not os.access(directory, os.X_OK):
        raise Refusal(
            protocol.REJECTED,
            "The working directory {} cannot be entered: give its user the right to, or choose another.".format(
                directory
            ),
        )


def _abandon(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
