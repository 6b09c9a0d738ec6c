"""When a job that a polled service no longer has counts as lost, and which missing jobs are queried first.

A failed query may look like an empty result, lists lag, and a controller that restarts knows less for a while. So one
round that lacks a job changes nothing. Services with a keeper or a watch report a loss at once and need none of this.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection

from nni_manager.domain.job import JobHandle

#: Seconds between two rounds that lack a job, after which it is lost.
APART_S = 60.0


class ConfirmedLoss:
    """The missing jobs of one service. `clock`: seconds of a steady clock; `most`: number of jobs queried per round.

    A job is lost if two rounds at least `apart_s` apart lacked it, every source of the service answered in both, no
    round in between had it, and its runner left no exit file. The rounds before a restart of the manager do not count.
    """

    def __init__(self, clock: Callable[[], float], *, apart_s: float = APART_S, most: int = 10) -> None:
        self._clock = clock
        self._apart_s = apart_s
        self._most = most
        #: Job name → time of the first complete round that lacked it.
        self._missed_s: dict[str, float] = {}
        #: Job name → number of its last query.
        self._asked: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def due(self, unlisted: Collection[JobHandle]) -> list[JobHandle]:
        """The unlisted jobs to query in this round, the longest waiting first; the others follow in later rounds."""
        longest = sorted(unlisted, key=lambda handle: self._asked.get(handle.job_name, 0))
        for handle in longest[: self._most]:
            self._asked[handle.job_name] = next(self._numbers)
        return longest[: self._most]

    def found(self, job_name: str) -> None:
        """Notes that a source has the job."""
        self._missed_s.pop(job_name, None)

    def is_lost(self, job_name: str, *, has_exit: bool, all_answered: bool = True) -> bool:
        """Notes that this round lacks the job; returns whether it is lost now.

        `has_exit`: its exit file was read, which decides instead; `all_answered`: every source answered.
        """
        if has_exit:
            self.found(job_name)
            return False
        if not all_answered:
            return False
        now_s = self._clock()
        return now_s - self._missed_s.setdefault(job_name, now_s) >= self._apart_s

    def forget(self, job_name: str) -> None:
        """Drops what is known of a job that is not observed any more."""
        self._missed_s.pop(job_name, None)
        self._asked.pop(job_name, None)
