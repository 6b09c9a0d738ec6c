"""Jobs that a service's list does not have, which is no proof that they are gone: they are asked about one by one."""

from __future__ import annotations

import itertools
from collections.abc import Collection

from nni_manager.domain.job import JobHandle


class UnlistedJobs:
    """The order in which unlisted jobs are asked about: `most` in a round, and those first that waited longest."""

    def __init__(self, most: int) -> None:
        self._most = most
        #: Job name → in which order it was asked about.
        self._asked: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def due(self, unlisted: Collection[JobHandle]) -> list[JobHandle]:
        """The jobs to ask about now; the others' turn comes in one of the next rounds."""
        longest = sorted(unlisted, key=lambda handle: self._asked.get(handle.job_name, 0))
        for handle in longest[: self._most]:
            self._asked[handle.job_name] = next(self._numbers)
        return longest[: self._most]

    def forget(self, job_name: str) -> None:
        self._asked.pop(job_name, None)
