"""Tells the manager that the runner lives, and hears whether the trial is to be stopped."""

import time
from typing import Any, Callable, Dict, Optional

from trial_runner.client import Client, Refused
from trial_runner.stream import Stream

_EVERY_S = 5.0
_SHORTEST_S = 0.05

#: Called with the seconds between SIGTERM and SIGKILL, None when the manager names none; from the delivering thread.
OnStop = Callable[[Optional[float]], None]


class Heartbeat(Stream):
    """Never done and never in the way of an end."""

    place_at_end = None

    def __init__(self, client: Client, is_reporter: bool, on_stop: OnStop) -> None:
        super().__init__()
        self._client = client
        self._is_reporter = is_reporter
        self._on_stop = on_stop
        self._every_s = _EVERY_S
        # The first comes at once: its answer says how often the manager wants them.
        self._next_at = time.monotonic()

    def wanted_at(self) -> Optional[float]:
        return self._next_at

    def send(self) -> None:
        self._next_at = time.monotonic() + self._every_s
        try:
            answer = self._client.post("heartbeat", {"reporter": self._is_reporter})
        except Refused:
            return
        self._every_s = max(_SHORTEST_S, _number(answer.get("everyS")) or _EVERY_S)
        self._next_at = time.monotonic() + self._every_s
        hear_stop(answer, self._on_stop)


def hear_stop(answer: Dict[str, Any], on_stop: OnStop) -> None:
    """What the answers to heartbeats and statuses say alike."""
    if answer.get("stop") is True:
        on_stop(_number(answer.get("graceS")))


def _number(value: object) -> Optional[float]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and isinstance(value, (int, float)) and value >= 0 else None
