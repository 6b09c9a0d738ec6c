"""All jobs this keeper knows, by name."""

from typing import Dict, Iterable, List, Optional, Set

from trial_runner.keeper.job import Job


class Jobs:
    """A job stays until it is forgotten, ended or not."""

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
