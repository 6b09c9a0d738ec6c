"""Notices that something has changed, for those that show experiments."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Changes:
    """A notice of changes; many before somebody looks are one. `also`: another one that is told, too."""

    def __init__(self, also: Changes | None = None) -> None:
        self._also = also
        self._watchers: set[asyncio.Event] = set()
        #: Grows with every note: what was read after it was looked at is not older than that.
        self.count = 0

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
