"""Waits between failed attempts."""

import os
from typing import Sequence


class Backoff:
    """The waits of a table, one after each consecutive failure; the last one repeats.

    `waits`: in the caller's unit of time. `least`: each wait is multiplied by a random number between this and 1, so
    that callers that failed together do not return together.
    """

    def __init__(self, waits: Sequence[float], least: float = 1.0) -> None:
        self._waits = waits
        self._least = least
        #: Number of consecutive failures.
        self.failures = 0

    def next_wait(self) -> float:
        """Counts a failure; returns the wait before the next attempt."""
        wait = self._waits[min(self.failures, len(self._waits) - 1)]
        self.failures += 1
        return wait * (self._least + (1.0 - self._least) * _random())

    def reset(self) -> None:
        """Restarts the table, after a success."""
        self.failures = 0


def _random() -> float:
    """A number from 0 to 1, evenly. The module `random` takes 5 ms to import, in each runner."""
    return int.from_bytes(os.urandom(4), "big") / 0xFFFFFFFF
