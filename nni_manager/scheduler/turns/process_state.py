"""The state of experiments at work that only this process knows: their config as it is now, who watches them, counters,
signs of life, warnings.

Nothing here is stored: the next process finds it out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from nni_manager.domain.clock import Durations
from nni_manager.domain.experiment import ExperimentSpec, ExperimentWarning


@dataclass(slots=True)
class LiveSpec:
    """The experiment's config as it is now, one object for loop, tuner and jobs: a change reaches all at once."""

    now: ExperimentSpec


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


class Tally:
    """Written on the event loop."""

    def __init__(self) -> None:
        #: From the snapshot to the commit of what was decided, waiting for the writer included.
        self.turns = Durations()
        #: Intermediate and final results that were stored.
        self.results = 0


tally = Tally()


#: Whoever was silent for so long, in seconds, is news when it is heard again.
_LONG_S = 20.0
#: A loop that did not look for so long, in seconds, could not have heard anything: it looks twice as often at least.
_STALL_S = 60.0


class Heartbeats:
    """The moments at which an experiment's runners were last heard. `news`: called when one that was silent for long is
    heard again.
    """

    def __init__(self, news: Callable[[], None]) -> None:
        self._news = news
        self._since_s: float | None = None
        self._looked_s = 0.0
        self._heard_s: dict[str, float] = {}

    def begin(self) -> None:
        """Runners can be heard from now on."""
        self._since_s = self._looked_s = asyncio.get_running_loop().time()

    def hear(self, job_name: str) -> None:
        """Any post of its runner."""
        now_s = asyncio.get_running_loop().time()
        last_s = self._heard_s.get(job_name, self._since_s)
        self._heard_s[job_name] = now_s
        if last_s is None or now_s - last_s > _LONG_S:
            self._news()

    def drop(self, job_name: str) -> None:
        """Drops a job, whose attempt is decided."""
        self._heard_s.pop(job_name, None)

    def silence_s(self, job_name: str) -> float | None:
        """The seconds for which a job's runner was silent; None: nobody could be heard yet."""
        if self._since_s is None:
            return None
        return asyncio.get_running_loop().time() - self._heard_s.get(job_name, self._since_s)

    def silence_ms(self) -> tuple[int | None, Mapping[str, int]]:
        """(for how long runners could be heard; None: not yet), and by job how long it was silent. Milliseconds."""
        if self._since_s is None:
            return None, {}
        now_s = asyncio.get_running_loop().time()
        self._discount_stall(now_s - self._looked_s)
        self._looked_s = now_s
        heard = {name: round(1000 * (now_s - heard_s)) for name, heard_s in self._heard_s.items()}
        return round(1000 * (now_s - self._since_s)), heard

    def _discount_stall(self, gap_s: float) -> None:
        if gap_s > _STALL_S and self._since_s is not None:
            self._since_s += gap_s
            self._heard_s = {name: heard_s + gap_s for name, heard_s in self._heard_s.items()}


class DaemonWarnings:
    """The warnings of a daemon. Whoever notices something sets one, and clears it later; both are idempotent."""

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[str, str], ExperimentWarning]] = {}
        #: Called with the id of an experiment whose warnings are others now.
        self.on_change: Callable[[str], None] = lambda _: None

    def set(self, experiment_id: str, warning: ExperimentWarning, about: str = "") -> None:
        """Each experiment has one warning of a code and a subject at most: the newest."""
        known = self._known.setdefault(experiment_id, {})
        if known.get((warning.code, about)) != warning:
            known[warning.code, about] = warning
            self.on_change(experiment_id)

    def clear(self, experiment_id: str, code: str = "", about: str = "") -> None:
        """Without a code: all of the experiment."""
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
