"""The table of a service's own words for the states of its jobs, and what they mean to us."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from nni_manager.domain.job import JobState

log = logging.getLogger(__name__)

#: Characters of a word that is no state that are shown.
_MOST_SHOWN = 100


class StateTable:
    """The states of jobs by a service's words. A word that is in no table is UNKNOWN, which changes nothing, and is
    named once in the log.

    `states`: may hold words that mean UNKNOWN; those are expected, and are not named.
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
