"""A service's own words for how a job is, in ours."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from nni_manager.domain.job import JobState

log = logging.getLogger(__name__)

_MOST_SHOWN = 100


class NativeStates:
    """`service`: its name, for the log. `silent`: words of its own that say nothing, which is no news."""

    def __init__(self, service: str, states: Mapping[str, JobState], *, silent: Collection[str] = ()) -> None:
        self._service = service
        self._states = states
        self._told = set(silent)

    def job_state(self, word: str) -> JobState:
        """UNKNOWN for a word that is in no table: it changes nothing, and is said once in the log."""
        state = self._states.get(word, JobState.UNKNOWN)
        if state is JobState.UNKNOWN and word not in self._told:
            self._told.add(word)
            log.warning(
                "%s says that a job is %r, which is in no table; it changes nothing", self._service, word[:_MOST_SHOWN]
            )
        return state
