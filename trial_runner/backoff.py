"""How long to wait before something that failed is tried again."""

import random

FIRST_S = 0.1
LONGEST_S = 10.0

_random = random.SystemRandom()


class Backoff:
    """Waits that double from 0.1 to 10 s, each shortened by up to half so that many runners do not come at once."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def next_wait(self) -> float:
        """Seconds."""
        wait = self._next_s
        self._next_s = min(2 * wait, LONGEST_S)
        return wait * _random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._next_s = FIRST_S
