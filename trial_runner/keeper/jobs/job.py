"""A job of the keeper: its claim, its main process, its end, and its current state; and saving these to disk."""

import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Set

from trial_runner import processes, protocol
from trial_runner.keeper.jobs.files import Claim, End, Log, MainProcess, StateFiles
from trial_runner.loop import Loop, Timer
from trial_runner.outboxes import Outboxes
from trial_runner.processes import Exit


class Job:
    """Changed only by `ending` (its end) and `follow` (what was sent)."""

    def __init__(self, claim: Claim, log: Callable[[str], None]) -> None:
        self.claim = claim
        self.name = claim.name
        self.main: Optional[MainProcess] = None
        #: Whether the main process is a child of this keeper, and so were all its descendants.
        self.is_child = False
        #: Readable when the main process ended; -1: there is none.
        self.pidfd = -1
        #: The main process is gone; others of the job may remain.
        self.is_main_gone = False
        #: Why its exit code will stay unknown, one sentence; empty: it may become known.
        self.lost = ""
        self.exit: Optional[Exit] = None
        #: Descriptors of processes to wait for after the main one, by pid.
        self.strays: Dict[int, int] = {}
        #: When the remaining processes get SIGKILL; None before a stop request.
        self.kill_timer: Optional[Timer] = None
        self.kill_at = 0.0
        #: Known before it is final: remaining data is read, written and reaped in between.
        self.end: Optional[End] = None
        self.is_over = False
        self.is_look_due = False
        self.is_main_recorded = False
        self.is_end_recorded = False
        self.outboxes = Outboxes(claim.attempt_directory, log)
        #: The connection requested this job.
        self.is_followed = False
        #: Everything that it reported was sent.
        self.is_drained = False

    def describe(self) -> Dict[str, Any]:
        """The *job* of the wire contract."""
        description = {
            "name": self.claim.name,
            "owner": self.claim.owner,
            "state": self.end.state if self.end is not None and self.is_over else protocol.RUNNING,
            "pid": None if self.main is None else self.main.pid,
            "started_ms": None if self.main is None else self.main.started_ms,
            "started_ago_ms": self._started_ago_ms(),
            "attempt_directory": self.claim.attempt_directory,
            "reservation": self.claim.reservation or {},
        }
        if self.end is not None and self.is_over:
            description.update(self.end._asdict(), ended_ago_ms=self._ended_ago_ms(self.end))
        return description

    def _started_ago_ms(self) -> Optional[int]:
        if self.main is None:
            return None
        if self.end is None or not self.is_over:
            return processes.age_ms(self.main.start_ticks)
        return self._ended_ago_ms(self.end) + self._ran_ms(self.main, self.end)

    def _ended_ago_ms(self, end: End) -> int:
        """The milliseconds since the end, by the monotonic clock, except for jobs of an earlier boot."""
        if self.main is None or self.claim.boot_id != processes.boot_id():
            return max(0, time.time_ns() // 1000000 - end.ended_ms)
        return max(0, processes.age_ms(self.main.start_ticks) - self._ran_ms(self.main, end))

    @staticmethod
    def _ran_ms(main: MainProcess, end: End) -> int:
        return max(0, end.ended_ms - main.started_ms)


class Jobs:
    """All jobs. A job stays until it is forgotten, ended or not."""

    def __init__(self) -> None:
        self._jobs: Dict[str, Job] = {}
        self._running: Dict[str, Job] = {}
        #: Children of this keeper that are main processes, until they are reaped.
        self.main_pids: Set[int] = set()

    def get(self, name: str) -> Optional[Job]:
        return self._jobs.get(name)

    def all(self) -> Iterable[Job]:
        return self._jobs.values()

    def running(self) -> List[Job]:
        return list(self._running.values())

    def add(self, job: Job) -> None:
        self._jobs[job.name] = job
        if not job.is_over:
            self._running[job.name] = job
        if job.is_child and job.main is not None:
            self.main_pids.add(job.main.pid)

    def mark_ended(self, job: Job) -> None:
        job.is_over = True
        del self._running[job.name]

    def remove(self, job: Job) -> None:
        del self._jobs[job.name]


#: Seconds until a failed write is repeated.
_RETRY_S = 2.0


class Saving:
    """Saves jobs' states. Raises nothing: unsaved state stays in memory. `on_saved`: everything is on disk now."""

    def __init__(self, loop: Loop, state_files: StateFiles, log: Log) -> None:
        self._loop = loop
        self._state_files = state_files
        self._log = log
        self._owed: Dict[str, Job] = {}
        self._is_retrying = False
        self.on_saved: Callable[[], None] = lambda: None

    @property
    def is_done(self) -> bool:
        return not self._owed

    def save(self, job: Job) -> None:
        """Records the main process and the end, as far as they are known and unsaved."""
        try:
            self._record(job)
        except FileNotFoundError:
            # deleted files do not return, and the folder is found after a move
            self._log.write("{}: its state file was deleted, so its state is not saved any more".format(job.name))
        except OSError as error:
            self._log.write("{}: its state cannot be written yet: {}".format(job.name, error))
            self._owed[job.name] = job
            self._retry_later()

    def forget(self, job: Job) -> None:
        """Frees the name. Raises OSError."""
        self._state_files.remove(job.name)
        self._owed.pop(job.name, None)

    def _record(self, job: Job) -> None:
        if job.main is not None and not job.is_main_recorded:
            self._state_files.append(job.name, job.main)
            job.is_main_recorded = True
        if job.end is not None and not job.is_end_recorded:
            self._state_files.append(job.name, job.end)
            job.is_end_recorded = True

    def _retry_later(self) -> None:
        if not self._is_retrying:
            self._is_retrying = True
            self._loop.call_later(_RETRY_S, self.retry)

    def retry(self) -> None:
        """Repeats failed writes now."""
        self._is_retrying = False
        owed, self._owed = self._owed, {}
        for job in owed.values():
            self.save(job)
        if owed and not self._owed:
            self.on_saved()
