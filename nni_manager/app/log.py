"""Logging of the daemon: one line per event on standard error, with its experiment."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable

from nni_manager.scheduler import experiment_log

#: Seconds within which a repeated event is logged once.
_ONCE_IN_S = 60.0


class Sparing:
    """Rate-limited warnings about events that any client can cause: the first at once, then one a minute with a
    count."""

    def __init__(self, log: logging.Logger, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock_s = clock_s
        self._said_s = -math.inf
        self._unsaid = 0

    def warning(self, sentence: str) -> None:
        now_s = self._clock_s()
        if now_s - self._said_s < _ONCE_IN_S:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} times more since that was said last)" if self._unsaid else ""
        self._said_s, self._unsaid = now_s, 0
        self._log.warning("%s%s", sentence, more, extra={"action": "listener"})


def set_up(level: str) -> None:
    """`level`: fatal, error, warning, info, debug or trace."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(experiment_log.Formatter(suffix=_experiment))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("nni_manager").setLevel(experiment_log.LEVELS[level])
    logging.raiseExceptions = False  # a log line that cannot be written, as on a full disk, must not raise
    # no line contains them, and collecting them costs as much as writing a line
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _experiment() -> str:
    id_ = experiment_log.current.get()
    return f" [{id_}]" if id_ else ""
