"""The table that maps a service's words for the states of its jobs to `JobState`."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from nni_manager.domain.job import JobState

log = logging.getLogger(__name__)

#: Most characters of an unknown word in the log.
_MOST_SHOWN = 100


class StateTable:
    """The states of jobs by a service's words. A word outside the table is UNKNOWN, which changes nothing, and is
    logged once.

    `states`: words that map to UNKNOWN are expected and not logged.
    """

    def __init__(self, service: str, states: Mapping[str, JobState]) -> None:
        self._service = service
        self._states = states
        self._named: set[str] = set()

    def state(self, word: str) -> JobState:
        state = self._states.get(word)
        if state is None and word not in self._named:
            self._named.add(word)
            shown = word[:_MOST_SHOWN]
            log.warning("%s says %r of a job, which is in no table; the trial stays as it is", self._service, shown)
        return state or JobState.UNKNOWN
