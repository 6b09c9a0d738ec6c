"""What follows when the stream of an experiment's states is over before the experiment is."""

from __future__ import annotations

import time
from collections.abc import Callable

from nni_manager.domain.errors import NniManagerError
from nni_manager.programs.waiting import StreamEnded

#: Seconds before each next try; after so many ends in a row no more is tried.
_WAITS_S = (0.0, 1.0, 2.0, 5.0, 10.0)
#: Seconds after which a stream has lasted: its end is the first one of a row.
_LASTING_S = 60.0


class StreamEnds:
    """The ends in a row of one experiment's streams: a daemon that dies is started again, unless it dies each time; one
    that was ended on purpose is not."""

    def __init__(self, id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._id = id
        self._clock = clock
        self._in_a_row = 0
        self._began_s = clock()
        #: A daemon may be started: the last one that said anything did not end its stream in order.
        self.may_start = True

    def begin(self) -> None:
        """A stream is asked for."""
        self._began_s = self._clock()

    def note(self, end: StreamEnded, *, heard: bool) -> float:
        """Notes the end of a stream; returns the seconds until the next is to be asked for. `heard`: it had brought a
        state. Raises NniManagerError after too many ends in a row."""
        self.may_start = not end.in_order and (heard or self.may_start)
        if self._clock() - self._began_s >= _LASTING_S:
            self._in_a_row = 0
        if self._in_a_row == len(_WAITS_S):
            raise NniManagerError(
                f"the daemon went away {self._in_a_row + 1} times in a row while experiment {self._id} was waited for,"
                " which is given up; its trials go on, and the daemon's log says why"
            )
        self._in_a_row += 1
        return _WAITS_S[self._in_a_row - 1]
