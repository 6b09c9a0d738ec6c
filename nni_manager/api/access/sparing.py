"""Rate-limited log lines about events that any client can cause, and the message for internal errors."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

FAULT = "internal error of the manager, not of your request; see its log for details, and try the request again"

#: Seconds within which a repeated event is logged once.
_ONCE_IN_S = 60.0


class Sparing:
    """Rate-limited log lines: the first event at once, then one line a minute with a count."""

    def __init__(self, log: logging.Logger, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock_s = clock_s
        self._said_s = -math.inf
        self._unsaid = 0

    def warning(self, sentence: str) -> None:
        self._say(logging.WARNING, sentence)

    def exception(self, sentence: str) -> None:
        """Log an error with the traceback of the current exception."""
        self._say(logging.ERROR, sentence, exc_info=True)

    def _say(self, level: int, sentence: str, *, exc_info: bool = False) -> None:
        now_s = self._clock_s()
        if now_s - self._said_s < _ONCE_IN_S:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} more since the last such line)" if self._unsaid else ""
        self._said_s, self._unsaid = now_s, 0
        self._log.log(level, "%s%s", sentence, more, exc_info=exc_info, extra={"action": "listener"})
