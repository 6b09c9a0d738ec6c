"""Posts of a runner: one kind at a time, when it is due; its status, and its signs of life."""

import time
from typing import Any, Callable, Dict, Optional

from trial_runner.runner.client import RETRY_WAITS_S, Answer, Fenced, Post, Refused
from trial_runner.wire.backoff import Backoff


class Stream:
    """Used only by the delivering thread."""

    #: Order after the command has ended: higher numbers wait for all lower ones. None: only for a running command.
    place_at_end: Optional[int] = 0

    def __init__(self) -> None:
        self.is_ending = False
        #: The rest will never be delivered.
        self.is_given_up = False
        self._backoff = Backoff(RETRY_WAITS_S, least=0.5)
        self._not_before = 0.0

    def note_change(self) -> None:
        """Notes that files may have grown."""

    def note_end(self) -> None:
        """Notes that the files are complete."""
        self.is_ending = True
        self.note_change()

    def wanted_at(self) -> Optional[float]:
        """A monotonic time, in the past if there is something to post now; None: nothing to post."""
        raise NotImplementedError

    def post(self) -> Post:
        """The post that is due now; a later call may return another one."""
        raise NotImplementedError

    def settle(self, answer: Answer) -> None:
        """Handles the answer to the post. Raises Unavailable and Fenced."""
        raise NotImplementedError

    @property
    def is_last(self) -> bool:
        """After `note_end`: whether the present post is the last one."""
        return True

    @property
    def is_done(self) -> bool:
        """After `note_end`: whether all is delivered or given up."""
        return self.is_given_up or self.wanted_at() is None

    def give_up(self) -> None:
        """Gives up, as time is up."""
        self.is_given_up = True

    def due_at(self) -> Optional[float]:
        wanted_at = self.wanted_at()
        return None if wanted_at is None else max(wanted_at, self._not_before)

    def put_off(self, seconds: Optional[float]) -> None:
        """Delays the retry of a failed post; None: the default wait."""
        self._not_before = time.monotonic() + (self._backoff.next_wait() if seconds is None else seconds)

    def succeed(self) -> None:
        self._backoff.reset()
        self._not_before = 0.0


_EVERY_S = 5.0
_SHORTEST_S = 0.05

#: Called with the seconds between SIGTERM and SIGKILL, or None: the manager's answer has none. Delivering thread.
OnStop = Callable[[Optional[float]], None]


class Heartbeat(Stream):
    """Never done, and never delays an end."""

    place_at_end = None

    def __init__(self, is_reporter: bool, on_stop: OnStop) -> None:
        super().__init__()
        self._is_reporter = is_reporter
        self._on_stop = on_stop
        self._every_s = _EVERY_S
        # the reporting process starts heartbeats after the post that the command runs, whose answer has the same
        # fields: the manager's interval, and whether to stop
        self._next_at = None if is_reporter else time.monotonic()

    def begin(self, answer: Dict[str, Any]) -> None:
        """Starts, with the answer to the post that the command runs."""
        has_pace = _number(answer.get("everyS")) is not None
        self._note_pace(answer)
        self._next_at = time.monotonic() + (self._every_s if has_pace else 0.0)

    def wanted_at(self) -> Optional[float]:
        return self._next_at

    def post(self) -> Post:
        self._next_at = time.monotonic() + self._every_s
        return "heartbeat", {"reporter": self._is_reporter}

    def settle(self, answer: Answer) -> None:
        try:
            reply = answer()
        except Refused:
            return
        self._note_pace(reply)
        self._next_at = time.monotonic() + self._every_s
        hear_stop(reply, self._on_stop)

    def _note_pace(self, answer: Dict[str, Any]) -> None:
        self._every_s = max(_SHORTEST_S, _number(answer.get("everyS")) or _EVERY_S)


def hear_stop(answer: Dict[str, Any], on_stop: OnStop) -> None:
    """Stops the command if the answer to a heartbeat or status requests it."""
    if answer.get("stop") is True:
        on_stop(_number(answer.get("graceS")))


def _number(value: object) -> Optional[float]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and isinstance(value, (int, float)) and value >= 0 else None


class Status(Stream):
    """`body`: called when the post is due, to include earlier posts; `answered`: called with the answer."""

    def __init__(
        self,
        body: Callable[[], Dict[str, Any]],
        answered: Callable[[Dict[str, Any]], None],
        say: Callable[[str], None],
        place_at_end: int,
    ) -> None:
        super().__init__()
        self._body = body
        self._answered = answered
        self._say = say
        self.place_at_end = place_at_end
        self._event = ""
        self._is_answered = False

    def wanted_at(self) -> Optional[float]:
        return None if self._is_answered else 0.0

    def post(self) -> Post:
        body = self._body()
        self._event = str(body["event"])
        return "status", body

    def settle(self, answer: Answer) -> None:
        try:
            reply = answer()
        except Refused as error:
            self._say("The manager refused the status {!r} ({}).".format(self._event, error))
            reply = {}
        except Fenced as fence:
            if self._event != "exited":
                raise
            # reported before with a lost answer, or closed without this report; logs are accepted in both cases
            self._say("The manager has closed this attempt: {}".format(fence))
            reply = {}
        self._is_answered = True
        self._answered(reply)
