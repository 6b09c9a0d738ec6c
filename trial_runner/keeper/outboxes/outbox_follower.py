"""The jobs with changed outboxes: reported by the kernel, collected for some milliseconds.

Changes in a job's first moment (`listener.LATE_S`) are not reported: many jobs have ended by then, and cost no watch
and no wake-up. If the kernel cannot watch a folder (its limits are reached), the job counts as changed once a second.
"""

import os
from typing import Any, Callable, Dict, Iterable, NamedTuple, Optional, Set

from trial_runner import inotify, protocol
from trial_runner.inotify import Event, Inotify
from trial_runner.keeper.jobs.files import Log
from trial_runner.keeper.jobs.job import Job, Jobs
from trial_runner.keeper.serving.listener import LATE_S, Connection
from trial_runner.loop import Loop, Timer
from trial_runner.wire import foreign_files

#: Seconds between the first sign of a change and its report: frequent lines become few messages.
_GATHER_S = 0.03
#: Seconds between checks of jobs without a watch on their folders.
_UNWATCHED_S = 1.0
#: Maximum number of watched folders per job.
_MOST_FOLDERS = 100

_CHANGES = inotify.MODIFY | inotify.CREATE | inotify.MOVED_TO
_METRICS_FOLDER = os.path.dirname(protocol.METRICS_FILE)
_ATTEMPT_FOLDER = ""


class _Watch(NamedTuple):
    job: Job
    #: Relative to the attempt's folder.
    folder: str


class Watches:
    """`on_changed`: called with jobs that may have news; only between `listen` and `mute`."""

    def __init__(self, loop: Loop, log: Log, on_changed: Callable[[Iterable[Job]], None]) -> None:
        self._loop = loop
        self._log = log
        self._on_changed = on_changed
        self._inotify = _open(log)
        self._watches: Dict[int, _Watch] = {}
        self._numbers: Dict[str, Set[int]] = {}
        self._jobs: Dict[str, Job] = {}
        #: Jobs without a watch yet.
        self._beginning: Dict[str, Timer] = {}
        self._unwatched: Dict[str, Job] = {}
        self._is_listening = False
        self._gathering: Optional[Timer] = None
        self._looking: Optional[Timer] = None

    def add(self, job: Job) -> None:
        """Watches a job's folders after a moment, when it counts as changed."""
        self._jobs[job.name] = job
        self._numbers[job.name] = set()
        self._beginning[job.name] = self._loop.call_later(LATE_S, lambda: self._begin(job))

    def remove(self, job: Job) -> None:
        """Ends the following of an ended job. Ignores jobs that were never added."""
        if self._jobs.pop(job.name, None) is None:
            return
        self._unwatched.pop(job.name, None)
        if job.name in self._beginning:
            self._beginning.pop(job.name).cancel()
        for number in self._numbers.pop(job.name, ()):
            del self._watches[number]
            if self._inotify is not None:
                self._inotify.remove(number)

    def listen(self) -> None:
        self._is_listening = True
        if self._inotify is not None and self._gathering is None:
            self._loop.watch(self._inotify.descriptor, lambda _: self._gather())
        self._look_later()

    def mute(self) -> None:
        """Leaves changes queued in the kernel without waking the loop."""
        self._is_listening = False
        if self._inotify is not None:
            self._loop.unwatch(self._inotify.descriptor)

    def _begin(self, job: Job) -> None:
        del self._beginning[job.name]
        self._watch(job, _ATTEMPT_FOLDER, inotify.CREATE)
        self._watch_outboxes(job)
        self._watch_metrics(job)
        if self._is_listening:
            self._on_changed((job,))

    def _gather(self) -> None:
        assert self._inotify is not None
        self._loop.unwatch(self._inotify.descriptor)
        self._gathering = self._loop.call_later(_GATHER_S, self._tell)

    def _tell(self) -> None:
        assert self._inotify is not None
        self._gathering = None
        changed: Dict[str, Job] = {}
        for event in self._inotify.events():
            for job in self._jobs_of(event):
                changed[job.name] = job
        if self._is_listening:
            self.listen()
            self._on_changed(changed.values())

    def _jobs_of(self, event: Event) -> Iterable[Job]:
        if event.mask & inotify.OVERFLOW:
            return self._look_at_all()
        watch = self._watches.get(event.watch)
        if watch is None:
            return ()
        if watch.folder == _ATTEMPT_FOLDER:
            if os.fsdecode(event.name) != _METRICS_FOLDER:
                return ()
            self._watch_metrics(watch.job)
        elif event.mask & inotify.ISDIR:
            self._watch_outboxes(watch.job)
        return (watch.job,)

    def _look_at_all(self) -> Iterable[Job]:
        watched = [job for job in self._jobs.values() if job.name not in self._beginning]
        for job in watched:
            self._watch_outboxes(job)
            self._watch_metrics(job)
        return watched

    def _watch_outboxes(self, job: Job) -> None:
        folders = job.outboxes.folders()
        for folder in folders[:_MOST_FOLDERS]:
            self._watch(job, folder, _CHANGES)
        if len(folders) > _MOST_FOLDERS:  # all processes of this user share the limit of watches
            self._look_at(job)

    def _watch_metrics(self, job: Job) -> None:
        if os.path.isdir(os.path.join(job.claim.present_directory, _METRICS_FOLDER)):
            self._watch(job, _METRICS_FOLDER, _CHANGES)

    def _watch(self, job: Job, folder: str, mask: int) -> None:
        attempt_folder = job.claim.present_directory
        try:
            if self._inotify is None:
                raise OSError("inotify is missing")
            with foreign_files.opened_folder(attempt_folder, folder) as descriptor:
                number = self._inotify.add("/proc/self/fd/{}".format(descriptor), mask)
        except OSError as error:
            path = os.path.join(attempt_folder, folder)
            self._log.write("{} is not watched but checked every second: {}".format(path, error))
            self._look_at(job)
            return
        self._watches[number] = _Watch(job, folder)
        self._numbers[job.name].add(number)

    def _look_at(self, job: Job) -> None:
        self._unwatched[job.name] = job
        self._look_later()

    def _look_later(self) -> None:
        if self._is_listening and self._unwatched and self._looking is None:
            self._looking = self._loop.call_later(_UNWATCHED_S, self._look)

    def _look(self) -> None:
        self._looking = None
        if self._is_listening:
            self._look_later()
            self._on_changed(self._unwatched.values())


def _open(log: Log) -> Optional[Inotify]:
    try:
        return Inotify()
    except OSError as error:
        log.write("inotify is missing ({}): outboxes are checked every second".format(error))
        return None


#: Unsent bytes above which no outbox is read and no end is sent.
_MAX_UNSENT = 256 * 1024


class Follow:
    """Serves one connection at a time."""

    def __init__(self, loop: Loop, jobs: Jobs, log: Log) -> None:
        self._loop = loop
        self._jobs = jobs
        self._connection: Optional[Connection] = None
        #: Followed jobs that may have data to send, in turn.
        self._changed: Dict[str, Job] = {}
        self._watches = Watches(loop, log, self._on_changed)

    def connect(self, connection: Connection) -> None:
        """Accepts a connection, which will name the jobs to follow."""
        self._forget_asked()
        self._connection = connection
        self._watches.listen()

    def disconnect(self) -> None:
        self._connection = None
        self._forget_asked()
        self._watches.mute()

    def add(self, job: Job) -> None:
        """Watches the folders of a running job, from its first possible change on."""
        self._watches.add(job)

    def remove(self, job: Job) -> None:
        """Ends the watches of a job; ignores jobs that were never added."""
        self._watches.remove(job)
        self._changed.pop(job.name, None)

    def begin(self, job: Job, offsets: Dict[str, int]) -> None:
        """Sends the job's data from these byte offsets on, and its end, again if necessary."""
        job.outboxes.rewind(offsets)
        job.outboxes.look_in(job.claim.present_directory)
        job.is_followed = True
        job.is_drained = False
        self._changed[job.name] = job
        self._loop.call_soon(self.ship)

    def drain(self, job: Job) -> None:
        """Sends the remaining data of an ended job, as far as the connection accepts it."""
        self._watches.remove(job)
        if job.is_followed and self._connection is not None:
            self._ship_lines(job, self._connection)

    def end(self, job: Job) -> None:
        """Sends the end, after the remaining data."""
        self._watches.remove(job)
        self._on_changed((job,))

    def ship(self) -> None:
        """Sends as much as the connection accepts; called again when it accepts more."""
        connection = self._connection
        while connection is not None and self._changed and connection.unsent <= _MAX_UNSENT:
            job = self._changed.pop(next(iter(self._changed)))
            if not self._ship_lines(job, connection):
                self._changed[job.name] = job  # after the others
            elif job.is_over:
                connection.send({"event": "ended", "name": job.name, "owner": job.claim.owner, "job": job.describe()})

    def _ship_lines(self, job: Job, connection: Connection) -> bool:
        """Whether all available data was sent."""
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
