"""Counters of the process, for its metrics."""

from __future__ import annotations

from nni_manager.domain.clock import Durations


class Tally:
    """Counters; written on the event loop only."""

    def __init__(self) -> None:
        #: Durations of turns, from queueing to commit.
        self.turns = Durations()
        #: Intermediate and final results that were stored.
        self.results = 0


tally = Tally()
