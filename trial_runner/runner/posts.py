"""Posts of a runner: one kind at a time, when it is due; its status, and its signs of life."""

import time
from typing import Any, Callable, Dict, Optional

from trial_runner.runner.client import Backoff, Client, Fenced, Refused


class Stream:
    """Used by the delivering thread alone."""

    #: When its turn is once the command has ended: those with a higher number wait for all with a lower one. None: it
    #: is about a command that runs.
    place_at_end: Optional[int] = 0

    def __init__(self) -> None:
        self.is_ending = False
        #: The rest will never be delivered.
        self.is_given_up = False
        self._backoff = Backoff()
        self._not_before = 0.0

    def note_change(self) -> None:
        """Files may have grown."""

    def note_end(self) -> None:
        """Nobody writes any more."""
        self.is_ending = True
        self.note_change()

    def wanted_at(self) -> Optional[float]:
        """A monotonic time, past when there is something to post now; None when there is nothing."""
        raise NotImplementedError

    def send(self) -> None:
        """Makes one request. Raises Unavailable and Fenced."""
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        """After `note_end`: all there was is delivered, or never will be."""
        return self.is_given_up or self.wanted_at() is None

    def give_up(self) -> None:
        """Gives up: time is up."""
        self.is_given_up = True

    def due_at(self) -> Optional[float]:
        wanted_at = self.wanted_at()
        return None if wanted_at is None else max(wanted_at, self._not_before)

    def put_off(self, seconds: Optional[float]) -> None:
        """Puts off the next try of a failed post; None leaves the wait to us."""
        self._not_before = time.monotonic() + (self._backoff.next_wait() if seconds is None else seconds)

    def succeed(self) -> None:
        self._backoff.reset()
        self._not_before = 0.0


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
    """Stops the command where the answer to a heartbeat or status says so."""
    if answer.get("stop") is True:
        on_stop(_number(answer.get("graceS")))


def _number(value: object) -> Optional[float]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and isinstance(value, (int, float)) and value >= 0 else None


class Status(Stream):
    """`body` is asked when it is time, so that it can say what was delivered before."""

    def __init__(
        self, client: Client, body: Callable[[], Dict[str, Any]], on_stop: OnStop, say: Callable[[str], None],
        place_at_end: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self._client = client
        self._body = body
        self._on_stop = on_stop
        self._say = say
        self.place_at_end = place_at_end
        self._is_told = False

    def wanted_at(self) -> Optional[float]:
        return None if self._is_told else 0.0

    def send(self) -> None:
        body = self._body()
        try:
            answer = self._client.post("status", body)
        except Refused as error:
            self._say("The manager refuses the status {!r} ({}).".format(body["event"], error))
            answer = {}
        except Fenced as fence:
            if body["event"] != "exited":
                raise
            # Told before, and the answer was lost; or decided without us. Either way logs are taken on.
            self._say("The manager has decided this attempt: {}".format(fence))
            answer = {}
        self._is_told = True
        hear_stop(answer, self._on_stop)
