"""The keeper's own folder, which is its working directory: its names are relative to it, so it may be moved."""

import os

JOBS = "jobs"
LOG = "keeper.log"


class Home:
    """`directory`: its path when the keeper began."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def is_deleted(self) -> bool:
        """Not when it was moved, nor when the disk does not answer: jobs must not end because of that."""
        try:
            os.stat(JOBS)
        except FileNotFoundError:
            return True
        except OSError:
            pass
        return False

    def is_there_again(self, job_name: str) -> bool:
        """A copy with this job was put back in its place: a keeper that begins there takes the job over."""
        return os.path.exists(os.path.join(self._directory, JOBS, job_name + ".jsonl"))
