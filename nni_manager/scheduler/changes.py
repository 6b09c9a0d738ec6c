"""Change notifications, for event streams and caches of the API."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager


class Changes:
    """Counts changes and wakes watchers; changes before a watcher runs are one. `also`: notified as well."""

    def __init__(self, also: Changes | None = None) -> None:
        self._also = also
        self._watchers: set[asyncio.Event] = set()
        #: Grows with every change: data read after the count was taken is at least that new.
        self.count = 0
        self._token = secrets.token_hex(4)

    @property
    def revision(self) -> str:
        """The count as a text that no other object, of this process or another, will have."""
        return f"{self._token}.{self.count}"

    def note(self) -> None:
        self.count += 1
        for watcher in self._watchers:
            watcher.set()
        if self._also is not None:
            self._also.note()

    @contextmanager
    def watch(self) -> Iterator[asyncio.Event]:
        """An event that is set by every change; the watcher clears it."""
        event = asyncio.Event()
        self._watchers.add(event)
        try:
            yield event
        finally:
            self._watchers.discard(event)
