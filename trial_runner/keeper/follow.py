"""What trials report, shipped from the outboxes to the connection, and each job's end after its last line.

While much is unsent nothing is read: the files are the buffer. A job is shipped only where it was asked for.
"""

from typing import Any, Dict, Iterable, Optional

from trial_runner.keeper.connection import Connection
from trial_runner.keeper.job import Job
from trial_runner.keeper.jobs import Jobs
from trial_runner.keeper.log import Log
from trial_runner.keeper.watches import Watches
from trial_runner.loop import Loop

#: Bytes unsent above which nothing is read and no end is told.
_MAX_UNSENT = 256 * 1024


class Follow:
    """Serves one connection at a time."""

    def __init__(self, loop: Loop, jobs: Jobs, log: Log) -> None:
        self._loop = loop
        self._jobs = jobs
        self._connection: Optional[Connection] = None
        #: Followed jobs that may have something to ship, in the order of their turns.
        self._changed: Dict[str, Job] = {}
        self._watches = Watches(loop, log, self._on_changed)

    def connect(self, connection: Connection) -> None:
        """Somebody listens, who will name the jobs to be shipped."""
        self._forget_asked()
        self._connection = connection
        self._watches.listen()

    def disconnect(self) -> None:
        self._connection = None
        self._forget_asked()
        self._watches.mute()

    def add(self, job: Job, *, is_new: bool = False) -> None:
        """Watches the folders of a job that runs, or is about to. `is_new`: only that for outboxes is there."""
        self._watches.add(job, is_new=is_new)

    def remove(self, job: Job) -> None:
        """Quiet for jobs that were never added."""
        self._watches.remove(job)
        self._changed.pop(job.name, None)

    def begin(self, job: Job, offsets: Dict[str, int]) -> None:
        """Ships the job from these byte offsets on, and its end, again if need be."""
        job.outboxes.rewind(offsets)
        job.is_followed = True
        job.is_drained = False
        self._changed[job.name] = job
        self._loop.call_soon(self.ship)

    def drain(self, job: Job) -> None:
        """Ships what is left of a job that has ended, as far as the connection takes it."""
        if job.is_followed and self._connection is not None:
            self._ship_lines(job, self._connection)

    def end(self, job: Job) -> None:
        """Tells the end, after what is left."""
        self._watches.remove(job)
        self._on_changed((job,))

    def ship(self) -> None:
        """As much as the connection takes; to be called again when it takes more."""
        connection = self._connection
        while connection is not None and self._changed and connection.unsent <= _MAX_UNSENT:
            job = self._changed.pop(next(iter(self._changed)))
            if not self._ship_lines(job, connection):
                self._changed[job.name] = job  # behind the others
            elif job.is_over:
                connection.send({"event": "ended", "name": job.name, "owner": job.claim.owner, "job": job.describe()})

    def _ship_lines(self, job: Job, connection: Connection) -> bool:
        """Whether all that is there was shipped."""
        if job.is_drained:
            return True
        if connection.unsent > _MAX_UNSENT:
            return False
        is_all = job.end is not None
        for chunk in job.outboxes.chunks(is_all):
            event: Dict[str, Any] = {"event": "lines", "name": job.name, "owner": job.claim.owner}
            event.update(chunk._asdict())
            connection.send(event)
            if connection.unsent > _MAX_UNSENT:
                return False
        job.is_drained = is_all
        return True

    def _on_changed(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job.is_followed:
                self._changed[job.name] = job
        self.ship()

    def _forget_asked(self) -> None:
        self._changed.clear()
        for job in self._jobs.all():
            job.is_followed = False
