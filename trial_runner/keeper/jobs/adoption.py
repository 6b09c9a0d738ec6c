"""Jobs of a keeper that is gone: recognised by pid, start time and boot, or by their tag; never guessed at."""

import os
import time
from typing import Optional

from trial_runner import processes, protocol
from trial_runner.keeper.jobs import process_tags
from trial_runner.keeper.jobs.ending import Ending
from trial_runner.keeper.jobs.files import End, Log, MainProcess, Record, StateFiles
from trial_runner.keeper.jobs.job import Job, Jobs, Saving
from trial_runner.keeper.outboxes.outbox_follower import Follow

#: What became of jobs that cannot be vouched for any more.
_RESTARTED = "its machine, or the container that it ran in, was restarted before it had ended"
_UNSEEN = "it ended while no keeper ran on its machine, where the keeper had died, so its exit code is unknown"
_NOT_FOUND = "the keeper of its machine died while it started it, and the next one found no process of it"
_FIRST_PID = 1


class Adoption:
    """Fills the registry of a keeper that begins."""

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
        """Every state file becomes a job again, or is removed when nothing was started for it. Raises OSError."""
        records, empty = self._state_files.load()
        for name in empty:
            self._drop(name)
        for record in records:
            self._adopt(record, boot_id)

    def _adopt(self, record: Record, boot_id: str) -> None:
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
            self._saving.ended(job)
        else:
            self._go_on(job)

    def _drop(self, name: str) -> None:
        self._log.write("{}: claimed but not started; the claim is dropped".format(name))
        self._state_files.remove(name)

    def _was_never_started(self, record: Record) -> bool:
        """The keeper died after its claim and before the start: the manager submits the job again."""
        if record.main is not None or record.end is not None:
            return False
        # the last thing that is made before a job's start
        has_output = os.path.lexists(os.path.join(record.claim.attempt_directory, protocol.STDOUT_FILE))
        return not has_output and not process_tags.marked_processes(record.claim)

    def _find_main(self, job: Job) -> None:
        """The main process, if it is there: running, or a zombie that still has its exit code."""
        if job.main is None:
            job.main = _marked_main(job)
        if job.main is None or not _is_there(job.main):
            return
        try:
            job.pidfd = processes.open_pidfd(job.main.pid)
        except ProcessLookupError:
            return
        if not _is_there(job.main):  # exchanged for another one just now
            os.close(job.pidfd)
            job.pidfd = -1

    def _go_on(self, job: Job) -> None:
        self._saving.main_started(job)
        if job.pidfd < 0:
            self._log.write("{}: its main process is gone and left no exit code".format(job.name))
            self._ending.lose(job, _what_became_of(job))
            return
        self._follow.add(job)
        self._ending.watch(job)


def _end_by_boot(record: Record, boot_id: str) -> Optional[End]:
    """The end of a job that was started before the machine was; None: it was not."""
    if record.claim.boot_id == boot_id:
        return None
    return End(protocol.LOST, None, None, time.time_ns() // 1000000, "", None, _RESTARTED)


def _is_there(main: MainProcess) -> bool:
    stat = processes.read_stat(main.pid)
    return stat is not None and stat.start_ticks == main.start_ticks


def _what_became_of(job: Job) -> str:
    """One sentence about a job whose main process is gone. In a container, which has the boot id of its host, the first
    process tells of a restart: it is younger than the job, or than the keeper that was about to start it."""
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
