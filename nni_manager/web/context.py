"""What the pages use of the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nni_manager.analysis.service import Analysis
from nni_manager.domain.clock import Clock, now_ms
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.scheduler.experiments.submission import Submission
from nni_manager.store.index import list_summary
from nni_manager.store.index.index import Entry
from nni_manager.store.index.list_summary import ListSummary


class KnownResults:
    """Results of closed experiments as they stand in the index, each parsed once, however many there are.

    Used from several threads, where the worst is to parse one twice.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ListSummary | None]] = {}

    def of(self, entry: Entry) -> ListSummary | None:
        """The results of an entry; None: not known."""
        known = self._known.get(entry.id)
        if known is None or known[0] != entry.results:
            known = self._known[entry.id] = entry.results, list_summary.parse(entry.results)
        return known[1]

    def keep_only(self, ids: Collection[str]) -> None:
        """Drops those of experiments that are gone."""
        if len(self._known) > len(ids):
            self._known = {id: known for id, known in tuple(self._known.items()) if id in ids}


async def _nothing() -> None:
    """No code was sent for an experiment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesContext:
    """The parts of the daemon that the pages use."""

    commands: ExperimentCommands
    version: str
    #: Answers questions about trials, in a process of its own.
    analysis: Analysis
    #: The experiment in the text of a file, which is not made; None: new ones are not offered.
    read_experiment: Callable[[str], Awaitable[Submission]] | None = None
    #: Called when an experiment was deleted, and removes sent code that nothing needs.
    sweep_code: Callable[[], Awaitable[None]] = _nothing
    #: Folders that were removed from here are named.
    data_directory: Path | None = None
    #: The API's OpenAPI document; None: it is not shown.
    describe_api: Callable[[], Mapping[str, Any]] | None = None
    clock: Clock = now_ms
    #: What the list parsed of closed experiments.
    results: KnownResults = field(default_factory=KnownResults)
    #: Set when the daemon ends: streams end on it.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
