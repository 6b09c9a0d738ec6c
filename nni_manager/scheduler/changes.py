"""Change notifications, for event streams and caches of the API; and the daemon's warnings, in memory only: the next
process detects the causes again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nni_manager.domain.experiment import ExperimentWarning


class Changes:
    """Counts changes and wakes watchers; changes before a watcher runs are merged. `also`: notified as well."""

    def __init__(self, also: Changes | None = None) -> None:
        self._also = also
        self._watchers: set[asyncio.Event] = set()
        #: Grows with every change: data read after the count is at least that new.
        self.count = 0
        self._token = secrets.token_hex(4)

    @property
    def revision(self) -> str:
        """The count as a unique text, also across processes."""
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


class DaemonWarnings:
    """The warnings of a daemon; `set` and `clear` are idempotent."""

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[str, str], ExperimentWarning]] = {}
        #: Called with an experiment's id after its warnings changed.
        self.on_change: Callable[[str], None] = lambda _: None

    def set(self, experiment_id: str, warning: ExperimentWarning, about: str = "") -> None:
        """Sets a warning; it replaces one of the same experiment, code and subject."""
        known = self._known.setdefault(experiment_id, {})
        if known.get((warning.code, about)) != warning:
            known[warning.code, about] = warning
            self.on_change(experiment_id)

    def clear(self, experiment_id: str, code: str = "", about: str = "") -> None:
        """Clears a warning; without a code, all of the experiment."""
        known = self._known.get(experiment_id, {})
        gone = [(code, about)] if (code, about) in known else [] if code else list(known)
        for name in gone:
            del known[name]
        if not known:
            self._known.pop(experiment_id, None)
        if gone:
            self.on_change(experiment_id)

    def of(self, experiment_id: str) -> tuple[ExperimentWarning, ...]:
        """The warnings of an experiment, oldest first."""
        return tuple(self._known.get(experiment_id, {}).values())
