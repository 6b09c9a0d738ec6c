"""The end of a job: all its processes are gone, its end is on disk, and it is reaped.

The order matters. While the job's other processes are ended, the main process is not reaped, so that its pid and
session id stay reserved. The end is written before reaping, so that a keeper killed in between loses nothing.
"""

import errno
import os
import signal
import time
from typing import Callable, Iterable, List, Optional

from trial_runner import processes, protocol
from trial_runner.keeper.jobs import process_tags
from trial_runner.keeper.jobs.files import End
from trial_runner.keeper.jobs.job import Job, Jobs, Saving
from trial_runner.loop import Loop
from trial_runner.processes import Exit
from trial_runner.wire import stderr_end

#: Number of a job's processes to wait for at a time: their deaths lead to the others.
_MAX_WATCHED = 64
#: Seconds until the next check of a job if no descriptor was available.
_LOOK_AGAIN_S = 0.1
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
#: The message of an end that only the job's own parent has seen.
_UNTOLD = "it ended under another keeper than the one that started it, and the system did not report its exit code"

JobCallback = Callable[[Job], None]


class Ending:
    """`drain`: reads what the job reported before its end is on disk; `on_end`: called last."""

    def __init__(self, loop: Loop, jobs: Jobs, saving: Saving) -> None:
        self._loop = loop
        self._jobs = jobs
        self._saving = saving
        self._traced: List[Job] = []
        self.drain: JobCallback = lambda _: None
        self.on_end: JobCallback = lambda _: None

    def watch(self, job: Job) -> None:
        """Waits for the end of the main process, which may have happened already."""
        self._loop.watch(job.pidfd, lambda _: self._main_ended(job))

    def lose(self, job: Job, why: str) -> None:
        """Ends the remaining processes of a job without its main process; the job becomes LOST. `why`: one sentence."""
        job.is_main_gone, job.lost = True, why
        self._look_soon(job)

    def terminate(self, job: Job, grace_s: float) -> None:
        """SIGTERM to every process of the job, once; SIGKILL to all alive after `grace_s` seconds. Returns at once."""
        kill_at = time.monotonic() + grace_s
        if job.kill_timer is None:
            if grace_s > 0:
                self._signal_all(job, signal.SIGTERM)
        elif job.kill_at <= kill_at:
            return
        else:
            job.kill_timer.cancel()
        job.kill_at = kill_at
        job.kill_timer = self._loop.call_later(grace_s, lambda: self._signal_all(job, signal.SIGKILL))

    def child_changed(self) -> None:
        """Checks traced main processes again, and reaps orphans, which become our children."""
        traced, self._traced = self._traced, []
        for job in traced:
            self._main_ended(job)
        if not processes.has_ended_children():  # it was a main process, which is reaped elsewhere
            return
        for pid in self._orphans():
            processes.reap(pid)

    def _main_ended(self, job: Job) -> None:
        self._loop.unwatch(job.pidfd)
        job.exit = _exit_of(job)
        if job.exit is None and job.is_child:
            # a debugger or strace is notified before the parent, which gets SIGCHLD when the debugger is done or gone
            self._traced.append(job)
            return
        job.is_main_gone = True
        self._look(job)

    def _look(self, job: Job) -> None:
        """Ends the job when no processes are left; otherwise waits for them, and kills them when time is up."""
        job.is_look_due = False
        if job.end is not None:
            return
        tree = self._tree(job)
        if job.kill_timer is None or job.kill_at <= time.monotonic():
            for pid in tree:
                processes.send_signal(pid, signal.SIGKILL)
        if not self._wait_for(job, tree):
            self._finish(job)

    def _look_soon(self, job: Job) -> None:
        """Checks the job's processes in the loop's next turn; several requests before it cause one check."""
        if not job.is_look_due:
            job.is_look_due = True
            self._loop.call_soon(lambda: self._look(job))

    def _wait_for(self, job: Job, tree: Iterable[int]) -> bool:
        """Whether any of these is alive; then there will be another check."""
        try:
            for pid in tree:
                if len(job.strays) >= _MAX_WATCHED:
                    break
                if pid not in job.strays:
                    self._watch_stray(job, pid)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR:
                raise
            self._loop.call_later(_LOOK_AGAIN_S, lambda: self._look(job))
            return True
        return bool(job.strays)

    def _watch_stray(self, job: Job, pid: int) -> None:
        try:
            pidfd = processes.kept_free(processes.open_pidfd(pid))
        except ProcessLookupError:
            return
        if processes.has_ended(pidfd):  # a zombie that its parent has not reaped
            os.close(pidfd)
            return
        job.strays[pid] = pidfd
        self._loop.watch(pidfd, lambda _: self._stray_ended(job, pid))

    def _stray_ended(self, job: Job, pid: int) -> None:
        pidfd = job.strays.pop(pid)
        self._loop.unwatch(pidfd)
        os.close(pidfd)
        self._look_soon(job)

    def _signal_all(self, job: Job, number: int) -> None:
        if job.end is not None:
            return
        tree = self._tree(job)
        # the main process first: a shell that outlives its child would begin the next command
        if job.main is not None and not job.is_main_gone:
            processes.send_signal(job.main.pid, number)
        for pid in tree:
            processes.send_signal(pid, number)

    def _tree(self, job: Job) -> List[int]:
        """All processes of the job except a living main one, including zombies; parents first."""
        main_pid = 0 if job.main is None or job.is_main_gone else job.main.pid
        roots = [main_pid] if main_pid else []
        # orphans are our children, unless another keeper started them
        roots += self._own_strays(job) if job.is_child else process_tags.marked_processes(job.claim)
        return [pid for pid in processes.with_descendants(roots) if pid != main_pid]

    def _own_strays(self, job: Job) -> List[int]:
        return [pid for pid in self._orphans() if not processes.reap(pid) and self._is_of(job, pid)]

    def _orphans(self) -> List[int]:
        return [pid for pid in processes.own_children() if pid not in self._jobs.main_pids]

    def _is_of(self, job: Job, pid: int) -> bool:
        assert job.main is not None
        try:
            if os.getsid(pid) == job.main.pid:  # certain: until it is reaped, that number stays the main process's
                return True
        except ProcessLookupError:
            return False
        return process_tags.is_marked(pid, job.name, job.claim.tag)

    def _finish(self, job: Job) -> None:
        if job.kill_timer is not None:
            job.kill_timer.cancel()
        job.end = _end_of(job)
        self.drain(job)
        self._saving.save(job)
        self._reap(job)
        self._jobs.mark_ended(job)
        self.on_end(job)

    def _reap(self, job: Job) -> None:
        if job.pidfd >= 0:
            os.close(job.pidfd)
            job.pidfd = -1
        if job.is_child and job.main is not None:
            self._jobs.main_pids.discard(job.main.pid)
            os.waitpid(job.main.pid, 0)


def _exit_of(job: Job) -> Optional[Exit]:
    assert job.main is not None
    if job.is_child:
        return processes.peek_exit(job.main.pid)
    return processes.orphan_exit(job.main.pid, job.main.start_ticks, job.pidfd)


def _end_of(job: Job) -> End:
    ended_ms = _ended_ms(job)
    if job.exit is None:
        return End(protocol.LOST, None, None, ended_ms, "", job.lost or _UNTOLD)
    tail = "" if job.exit.exit_code == 0 else stderr_end.read(job.claim.present_directory)
    return End(protocol.ENDED, job.exit.exit_code, job.exit.signal, ended_ms, tail)


def _ended_ms(job: Job) -> int:
    """The present time in milliseconds, by the clock as it was at the job's start: setting the clock does not change
    durations."""
    if job.main is None:
        return time.time_ns() // 1000000
    return job.main.started_ms + processes.age_ms(job.main.start_ticks)
