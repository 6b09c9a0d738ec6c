"""Log lines about events that any client can cause, and the sentence for a fault of ours."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

FAULT = "a fault in the manager, nothing of yours; its log has the details, and what was asked for may be tried again"

#: Seconds within which a repeated event is logged once.
_ONCE_IN_S = 60.0


class Sparing:
    """Rate-limited log lines about events that any client can cause: the first at once, then one a minute with a
    count."""

    def __init__(self, log: logging.Logger, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock_s = clock_s
        self._said_s = -math.inf
        self._unsaid = 0

    def warning(self, sentence: str) -> None:
        self._say(logging.WARNING, sentence)

    def exception(self, sentence: str) -> None:
        """An error with the traceback of the exception that is being handled."""
        self._say(logging.ERROR, sentence, exc_info=True)

    def _say(self, level: int, sentence: str, *, exc_info: bool = False) -> None:
        now_s = self._clock_s()
        if now_s - self._said_s < _ONCE_IN_S:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} times more since that was said last)" if self._unsaid else ""
        self._said_s, self._unsaid = now_s, 0
        self._log.log(level, "%s%s", sentence, more, exc_info=exc_info, extra={"action": "listener"})
