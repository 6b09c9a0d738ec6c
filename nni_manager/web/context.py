"""The interface between the pages and the daemon."""

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
    """Results of closed experiments from the index, each parsed once.

    Used from several threads without a lock: at worst, one is parsed twice.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ListSummary | None]] = {}

    def of(self, entry: Entry) -> ListSummary | None:
        """The results of an entry; None: unknown."""
        known = self._known.get(entry.id)
        if known is None or known[0] != entry.results:
            known = self._known[entry.id] = entry.results, list_summary.parse(entry.results)
        return known[1]

    def keep_only(self, ids: Collection[str]) -> None:
        """Drop the results of removed experiments."""
        if len(self._known) > len(ids):
            self._known = {id: known for id, known in tuple(self._known.items()) if id in ids}


async def _nothing() -> None:
    """Does nothing: no code was uploaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesContext:
    """The parts of the daemon that the pages use."""

    commands: ExperimentCommands
    version: str
    #: Answers questions about trials, in its own process.
    analysis: Analysis
    #: Parses the text of an experiment file without creating the experiment. None: the page "New experiment" is off.
    read_experiment: Callable[[str], Awaitable[Submission]] | None = None
    #: Called after an experiment was deleted; removes uploaded code that nothing uses.
    sweep_code: Callable[[], Awaitable[None]] = _nothing
    #: The daemon's data directory, to find removed folders and to check new experiments. None: no such checks.
    data_directory: Path | None = None
    #: Returns the API's OpenAPI document; None: the page is off.
    describe_api: Callable[[], Mapping[str, Any]] | None = None
    clock: Clock = now_ms
    #: Parsed results of closed experiments, for the list.
    results: KnownResults = field(default_factory=KnownResults)
    #: Set when the daemon stops; streams end then.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
