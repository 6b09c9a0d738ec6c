"""The event stream of an experiment's page. The state of an experiment is read once for all its readers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nni_manager.streams.event_stream import PAUSE_S, Part, event
from nni_manager.web import shown_experiments
from nni_manager.web.trial.log_page import LogTail

if TYPE_CHECKING:
    from nni_manager.web.context import PagesContext

#: Milliseconds between two questions of a chart: minimum, and per reader of the experiment. The load of charts thus
#: does not grow with the number of readers.
_CHART_PAUSE_MS, _CHART_PAUSE_A_READER_MS = 1000, 100


@dataclass(slots=True)
class _Shared:
    """The last state that was read of one experiment."""

    #: The experiment's change number when it was read; -1: never read.
    count: int = -1
    read_s: float = float("-inf")
    part: Part | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class States:
    """States of the experiments that have readers.

    Each is read once for all its readers, at most five times a second.
    """

    def __init__(self, context: PagesContext) -> None:
        self._context = context
        self._shared: dict[str, _Shared] = {}
        self._readers: dict[str, int] = {}

    @contextmanager
    def watch(self, id: str) -> Iterator[asyncio.Event]:
        """An event that every change sets; never set for a closed experiment."""
        self._readers[id] = self._readers.get(id, 0) + 1
        try:
            with self._context.commands.watch(id) as news:
                yield news
        finally:
            self._leave(id)

    async def read(self, id: str) -> Part:
        """The state as an event. Raises NotFound or StoreError."""
        shared = self._shared.setdefault(id, _Shared())
        async with shared.lock:
            if shared.part is None or shared.count != self._count(id):
                await asyncio.sleep(shared.read_s + PAUSE_S - time.monotonic())
                shared.count, shared.read_s = self._count(id), time.monotonic()
                shared.part = await self._read(id)
            return shared.part

    async def _read(self, id: str) -> Part:
        experiment = self._context.commands.at_work(id)
        is_over = experiment is None
        # the revision that charts use; read first, so the state is at least as new
        changed = {} if experiment is None else {"revision": experiment.changes.revision}
        found = await shown_experiments.read_progress(self._context, id)
        pause_ms = max(_CHART_PAUSE_MS, _CHART_PAUSE_A_READER_MS * self._readers.get(id, 0))
        told = found | changed | {"closed": is_over, "chartPauseMs": pause_ms}
        return Part(text=event("state", json.dumps(told)), is_last=is_over)

    def _count(self, id: str) -> int:
        """Number that grows with every change; -2: closed."""
        experiment = self._context.commands.at_work(id)
        return -2 if experiment is None else experiment.changes.count

    def _leave(self, id: str) -> None:
        self._readers[id] -= 1
        if not self._readers[id]:
            del self._readers[id]
            self._shared.pop(id, None)


class PageEvents:
    """The subject of one page's stream: the experiment's state at each change, and one growing log.

    `log`: None: no log.
    """

    def __init__(self, states: States, id: str, log: LogTail | None = None) -> None:
        self._states = states
        self._id = id
        self._log = log
        self._sent: Part | None = None

    @contextmanager
    def watch(self) -> Iterator[asyncio.Event]:
        with self._states.watch(self._id) as news:
            if self._log is None:
                yield news
                return
            following = asyncio.create_task(self._log.follow(news), name="stream: log")
            try:
                yield news
            finally:
                following.cancel()

    async def read(self) -> Part:
        state = await self._states.read(self._id)
        if self._log is None:
            return state
        if state.is_last:
            await self._log.look()  # the final content of the log
        text = self._log.take() + (
            "" if state is self._sent else state.text
        )  # a page closes the stream after the last state
        self._sent = state
        return Part(text=text, is_last=state.is_last)
