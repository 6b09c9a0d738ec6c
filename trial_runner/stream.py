"""One kind of thing that a runner posts: when it is due, and what happens when it cannot be delivered now."""

import time
from typing import Optional

from trial_runner.backoff import Backoff


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
        """Time is up."""
        self.is_given_up = True

    def due_at(self) -> Optional[float]:
        wanted_at = self.wanted_at()
        return None if wanted_at is None else max(wanted_at, self._not_before)

    def put_off(self, seconds: Optional[float]) -> None:
        """It failed; None leaves the wait to us."""
        self._not_before = time.monotonic() + (self._backoff.next_wait() if seconds is None else seconds)

    def succeed(self) -> None:
        self._backoff.reset()
        self._not_before = 0.0
