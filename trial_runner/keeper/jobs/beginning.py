"""How jobs begin at a keeper: started on request, or adopted from a dead keeper.

The order of the steps makes every crash recoverable: folder, claim on the name, files, process, its start time in the
state file. Each failure undoes the steps, the claim last, so that the same name can be tried again. Jobs of a dead
keeper are recognized by pid, start time and boot, or by their tag; never by a guess.
"""

import os
import signal
import time
from contextlib import contextmanager
from typing import Callable, Iterator, Optional, Tuple

from trial_runner import processes, protocol
from trial_runner.keeper.jobs import attempt_folder, process_tags
from trial_runner.keeper.jobs.ending import Ending
from trial_runner.keeper.jobs.files import Claim, End, Log, MainProcess, Record, StateFiles
from trial_runner.keeper.jobs.job import Job, Jobs, Saving
from trial_runner.keeper.jobs.undo import Undo
from trial_runner.keeper.outboxes.outbox_follower import Follow
from trial_runner.keeper.serving.requests import Refusal, SpawnRequest, system_refusal
from trial_runner.launch import Streams, launch
from trial_runner.wire.descriptors import Descriptor
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
        """A running job; the caller records its main process. Raises Refusal, leaving nothing behind."""
        _check_directory(request.directory)
        try:
            with Undo() as undo:
                return self._start_whole(request, undo)
        except ValueError as error:
            # null characters, '=' in a variable's name, or invalid UTF-8; the messages contain no values
            message = "Starting job {} failed: its environment or a file has illegal text ({}).".format(
                request.name, type(error).__name__
            )
            raise Refusal(protocol.INVALID, message) from error

    def _start_whole(self, request: SpawnRequest, undo: Undo) -> Job:
        """As `_start`; determines the disk's reason of a failure before undoing the steps."""
        try:
            return self._start(request, undo)
        except OSError as error:
            attempted = "Starting job {}".format(request.name)
            raise system_refusal(error, attempted, request.attempt_directory) from error

    def _start(self, request: SpawnRequest, undo: Undo) -> Job:
        processes.require_one(self._null)
        job = Job(self.claim_of(request), self._log)
        attempt_folder.make(request.attempt_directory, undo)
        if request.checkpoint:
            attempt_folder.make(request.checkpoint, undo)
        self.claim(job.claim)
        undo.add(self._state_files.remove, job.name)
        with OpenFolder(request.attempt_directory) as folder:
            pid, started_ms = self._start_in(folder, job.claim, request, undo)
        undo.add(_abandon, pid)
        # two descriptors were just closed, so this process has a free one
        job.pidfd = processes.open_pidfd(pid)
        undo.add(os.close, job.pidfd)
        stat = processes.read_stat(pid)
        assert stat is not None, "a child that was not reaped has a stat line"
        job.main = MainProcess(pid, stat.start_ticks, started_ms)
        job.is_child = True
        return job

    def _start_in(self, folder: OpenFolder, claim: Claim, request: SpawnRequest, undo: Undo) -> Tuple[int, int]:
        """The pid and the start time."""
        attempt_folder.fill(folder, request.files, undo)
        with Descriptor(attempt_folder.open_output(folder, protocol.STDOUT_FILE, undo)) as stdout:
            attempt_folder.mark_begun(stdout, folder, undo)
            with Descriptor(attempt_folder.open_output(folder, protocol.STDERR_FILE, undo)) as stderr:
                return self._run(request, claim, Streams(self._null, stdout, stderr))

    def claim(self, claim: Claim) -> None:
        """Writes the state file of a job. Raises OSError, and Refusal if the keeper's folder was deleted."""
        try:
            self._state_files.claim(claim)
        except FileNotFoundError as error:
            sentence = (
                "Starting job {} failed: the keeper's own folder was deleted. Jobs start again, under another"
                " keeper, as soon as those that run here have ended."
            ).format(claim.name)
            raise Refusal(protocol.UNAVAILABLE, sentence) from error

    def claim_of(self, request: SpawnRequest) -> Claim:
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
            home=_home(),
        )

    def _run(self, request: SpawnRequest, claim: Claim, streams: Streams) -> Tuple[int, int]:
        environment = dict(request.environment)
        environment[protocol.ENV_JOB] = process_tags.tag_variable(claim.name, claim.tag)
        started_ms = time.time_ns() // 1000000
        with process_tags.tagged(claim.tag), _umask(self._job_umask):
            return launch(request.command, request.directory, environment, streams), started_ms


def _home() -> str:
    """The keeper's folder; empty: it was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


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
            "The working directory {} is not an existing folder: create it or correct codeDir.".format(directory),
        )
    if not os.access(directory, os.X_OK):
        raise Refusal(
            protocol.REJECTED,
            "The working directory {} cannot be entered: give the user permission, or choose another.".format(
                directory
            ),
        )


def _abandon(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


#: Reasons why a job's exit code is unknown.
_RESTARTED = "its machine or container restarted before it had ended"
_UNSEEN = "it ended after the keeper of its machine had died, so its exit code is unknown"
_FILES_GONE = "the keeper that started it has lost its files, so its exit code is unknown"
_NOT_FOUND = "the keeper of its machine died while starting it, and the next one found no process of it"
_FIRST_PID = 1


class Adoption:
    """Fills the registry of a starting keeper."""

    def __init__(
        self, jobs: Jobs, follow: Follow, ending: Ending, saving: Saving, state_files: StateFiles, log: Log
    ) -> None:
        self._jobs = jobs
        self._follow = follow
        self._ending = ending
        self._saving = saving
        self._state_files = state_files
        self._log = log

    def run(self, boot_id: str) -> None:
        """Turns every state file into a job again, or removes it if nothing was started. Raises OSError."""
        records, empty = self._state_files.load()
        for name in empty:
            self._drop(name)
        for record in records:
            self._adopt(record, boot_id)

    def earlier(self, request: SpawnRequest, spawn: Spawn) -> Optional[Job]:
        """The job of this name that a keeper with lost files started; None: there is none.

        Raises OSError, Refusal."""
        if not attempt_folder.has_begun(request.attempt_directory):
            return None
        return self._take_over(request, process_tags.tag_of(request.name, request.attempt_directory), spawn)

    def running(self, request: SpawnRequest, spawn: Spawn) -> Optional[Job]:
        """As `earlier`, but only for a job with processes."""
        tag = process_tags.tag_of(request.name, request.attempt_directory)
        return self._take_over(request, tag, spawn) if tag else None

    def _take_over(self, request: SpawnRequest, tag: str, spawn: Spawn) -> Optional[Job]:
        """`tag`: of its processes; empty: it has none."""
        claim = spawn.claim_of(request)
        claim = claim._replace(tag=tag or claim.tag)
        spawn.claim(claim)
        self._log.write("{}: it was started by an earlier keeper whose files are gone".format(claim.name))
        self._adopt(Record(claim, None, None), claim.boot_id, _FILES_GONE)
        return self._jobs.get(claim.name)

    def _adopt(self, record: Record, boot_id: str, lost: str = "") -> None:
        """`lost`: why the exit code of a job without a process is unknown; empty: determined by `_what_became_of`."""
        job = Job(record.claim, self._log.write)
        job.main = record.main
        job.is_main_recorded = record.main is not None
        job.end = record.end or _end_by_boot(record, boot_id)
        job.is_end_recorded = record.end is not None
        if self._was_never_started(record):
            self._drop(record.claim.name)
            return
        job.is_over = job.end is not None
        if not job.is_over:
            self._find_main(job)
        self._jobs.add(job)
        if job.is_over:
            self._saving.save(job)
        else:
            self._go_on(job, lost)

    def _drop(self, name: str) -> None:
        self._log.write("{}: claimed but not started; the claim is dropped".format(name))
        self._state_files.remove(name)

    def _was_never_started(self, record: Record) -> bool:
        """Handles a claim without a start: the keeper died in between, and the manager submits the job again."""
        if record.main is not None or record.end is not None:
            return False
        # the last file created before a job's start
        has_output = os.path.lexists(os.path.join(record.claim.present_directory, protocol.STDOUT_FILE))
        return not has_output and not process_tags.marked_processes(record.claim)

    def _find_main(self, job: Job) -> None:
        """The main process if it exists: running, or a zombie that still has its exit code."""
        if job.main is None:
            job.main = _marked_main(job)
        if job.main is None or not _is_there(job.main):
            return
        try:
            job.pidfd = processes.open_pidfd(job.main.pid)
        except ProcessLookupError:
            return
        if not _is_there(job.main):  # just replaced by another process
            os.close(job.pidfd)
            job.pidfd = -1

    def _go_on(self, job: Job, lost: str) -> None:
        self._saving.save(job)
        if job.pidfd < 0:
            self._log.write("{}: its main process is gone without an exit code".format(job.name))
            self._ending.lose(job, lost or _what_became_of(job))
            return
        self._follow.add(job)
        self._ending.watch(job)


def _end_by_boot(record: Record, boot_id: str) -> Optional[End]:
    """The end of a job that started before the machine's last boot; None: it did not."""
    if record.claim.boot_id == boot_id:
        return None
    return End(protocol.LOST, None, None, time.time_ns() // 1000000, "", _RESTARTED)


def _is_there(main: MainProcess) -> bool:
    stat = processes.read_stat(main.pid)
    return stat is not None and stat.start_ticks == main.start_ticks


def _what_became_of(job: Job) -> str:
    """One sentence about a job whose main process is gone. A container has its host's boot id; its first process shows
    a restart if it is younger than the job, or than the keeper that was starting it."""
    first = processes.read_stat(_FIRST_PID)
    before = job.main.start_ticks if job.main is not None else job.claim.keeper_start_ticks
    if first is not None and before and first.start_ticks > before:
        return _RESTARTED
    return _NOT_FOUND if job.main is None else _UNSEEN


def _marked_main(job: Job) -> Optional[MainProcess]:
    """The first started of those that bear the job's marks and lead a session, as main processes do."""
    found = []
    for pid in process_tags.marked_processes(job.claim):
        stat = processes.read_stat(pid)
        if stat is not None and stat.session == pid:
            found.append((stat.start_ticks, pid))
    if not found:
        return None
    start_ticks, pid = min(found)
    return MainProcess(pid, start_ticks, processes.started_ms(start_ticks))
