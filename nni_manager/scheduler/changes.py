"""Tells whoever watches an experiment that there is something new; what it is, they read from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Changes:
    """Many notes while nobody looks are one."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Event] = set()
        #: Grows with every note: what was read after it was looked at is not older than that.
        self.count = 0

    def note(self) -> None:
        self.count += 1
        for watcher in self._watchers:
            watcher.set()

    @contextmanager
    def watch(self) -> Iterator[asyncio.Event]:
        """An event that is set by every change; the watcher clears it."""
        event = asyncio.Event()
        self._watchers.add(event)
        try:
            yield event
        finally:
            self._watchers.discard(event)
