"""Counters of the process, for its metrics."""

from __future__ import annotations

from nni_manager.domain.clock import Durations


class Tally:
    """Written on the event loop."""

    def __init__(self) -> None:
        #: From the snapshot to the commit of what was decided, waiting for the writer included.
        self.turns = Durations()
        #: Intermediate and final results that were stored.
        self.results = 0


tally = Tally()
