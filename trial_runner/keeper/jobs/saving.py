"""Writes to the disk about a job that was started; tried again while the disk is full."""

from typing import Callable, Dict

from trial_runner.keeper.jobs.files import StateFiles
from trial_runner.keeper.jobs.job import Job
from trial_runner.keeper.serving.log import Log
from trial_runner.loop import Loop

#: Seconds until a write that failed is tried again.
_RETRY_S = 2.0


class Saving:
    """The saving of jobs' states. Nothing raises: what is not on disk is in memory. `on_saved`: all is on disk now."""

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

    def main_started(self, job: Job) -> None:
        """Records the main process."""
        self._try(job, self._record_main)

    def ended(self, job: Job) -> None:
        """Records the end."""
        self._try(job, self._record_end)

    def forget(self, job: Job) -> None:
        """Frees the name. Raises OSError."""
        self._state_files.remove(job.name)
        self._owed.pop(job.name, None)

    def _try(self, job: Job, write: Callable[[Job], None]) -> None:
        try:
            write(job)
        except FileNotFoundError:
            # Files that were deleted do not come back, and the folder is found wherever it was moved to.
            self._log.write("{}: its state file was deleted, so nothing more is kept of it".format(job.name))
        except OSError as error:
            self._log.write("{}: its state cannot be written, yet: {}".format(job.name, error))
            self._owed[job.name] = job
            self._retry_later()

    def _record_main(self, job: Job) -> None:
        if job.main is not None and not job.is_main_recorded:
            self._state_files.append(job.name, job.main)
            job.is_main_recorded = True

    def _record_end(self, job: Job) -> None:
        if job.end is not None and not job.is_end_recorded:
            self._state_files.append(job.name, job.end)
            job.is_end_recorded = True

    def _retry_later(self) -> None:
        if not self._is_retrying:
            self._is_retrying = True
            self._loop.call_later(_RETRY_S, self.retry)

    def retry(self) -> None:
        """Tries now what is owed."""
        self._is_retrying = False
        owed, self._owed = self._owed, {}
        for job in owed.values():
            for write in (self._record_main, self._record_end):
                self._try(job, write)
        if owed and not self._owed:
            self.on_saved()
