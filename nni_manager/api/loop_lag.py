"""The lag of the event loop: by so much, everything that is asked of the daemon waits."""

from __future__ import annotations

from collections import deque

from nni_manager.domain.clock import Durations

#: Ticks that `worst_s` looks back on; there is one a second.
_TICKS = 60


class LoopLag:
    """Told by whoever has a clock that ticks on the loop."""

    def __init__(self) -> None:
        self.all = Durations()
        self._latest: deque[float] = deque(maxlen=_TICKS)

    def note(self, late_s: float) -> None:
        """A tick came `late_s` seconds after its time."""
        late_s = max(0.0, late_s)
        self.all.add(late_s)
        self._latest.append(late_s)

    @property
    def worst_s(self) -> float:
        """Of the last minute, in seconds."""
        return max(self._latest, default=0.0)
