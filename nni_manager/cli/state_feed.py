"""An experiment's states as they come, read in a thread so that waiting can have a limit and be interrupted."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable

from nni_manager.cli.progress import State

log = logging.getLogger(__name__)


class StreamEnded(Exception):
    """Nothing more will come, for whatever reason."""


class StateFeed:
    """`states` is called, and read to its end, in a thread of its own."""

    def __init__(self, states: Callable[[], Iterable[State]]) -> None:
        self._queue: queue.SimpleQueue[State | StreamEnded] = queue.SimpleQueue()
        # a daemon thread: a stream that nobody reads any more must not keep the process
        threading.Thread(target=self._read, args=(states,), name="events", daemon=True).start()

    def next(self, timeout_s: float | None) -> State | None:
        """The newest state; None when there was no news for `timeout_s`. Raises StreamEnded."""
        try:
            news = self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None
        while not isinstance(news, StreamEnded) and not self._queue.empty():
            later = self._queue.get()
            if isinstance(later, StreamEnded):
                self._queue.put(later)  # the last state before the end still counts
                break
            news = later
        if isinstance(news, StreamEnded):
            raise news
        return news

    def _read(self, states: Callable[[], Iterable[State]]) -> None:
        try:
            for state in states():
                self._queue.put(state)
        except Exception as error:  # whoever waits asks the daemon again, and is told why
            log.debug("the events broke off: %s", error)
        finally:
            self._queue.put(StreamEnded())
