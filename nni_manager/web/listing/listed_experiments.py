"""``/``: the list of all experiments, and its event stream.

Filter and order use only the index, so the databases of closed experiments stay closed. Of open experiments, which are
few, the changing values are read.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.domain.errors import NniManagerError, NotFound, StoreError
from nni_manager.domain.experiment import ExperimentStatus, Hold
from nni_manager.domain.trial_status import OPEN_STATUSES, TrialStatus, ended, has_open
from nni_manager.scheduler.changes import Changes
from nni_manager.store.connection import Connection
from nni_manager.store.index import best_results, overview
from nni_manager.store.index.index import Entry
from nni_manager.store.index.list_summary import ListSummary
from nni_manager.store.index.overview import Live
from nni_manager.streams.event_stream import EventStream, Part, event
from nni_manager.web import formats
from nni_manager.web.context import KnownResults, PagesContext
from nni_manager.web.listing.list_query import ARCHIVED, ListQuery
from nni_manager.web.rendering import context_of, render
from nni_manager.web.shared_pages import of_all, shared

#: Commands shown if the list is empty.
COMMANDS = (
    ("nnictl config check my.yml", "checks an experiment file: names each error with line and field"),
    ("nnictl create --config my.yml", "creates and starts an experiment, which then appears here"),
    ("nnictl experiment list", "lists all experiments in the terminal"),
)


async def _list(request: Request) -> Response:
    query = ListQuery.parse(request.query_params.multi_items())
    page = await read(context_of(request), query)
    return render(request, "experiments.html", listed=page, query=query, commands=COMMANDS, archived=ARCHIVED)


async def _stream(request: Request) -> Response:
    """Stream of change events; the page then fetches its content. Ends when the daemon stops."""
    context = context_of(request)
    return EventStream(_News(context.commands.changes), context.stopping)


class _News:
    """Changes of all experiments, as the subject of a stream."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def watch(self) -> AbstractContextManager[asyncio.Event]:
        return self._changes.watch()

    async def read(self) -> Part:
        return Part(text=event("state", json.dumps({"revision": self._changes.count})), is_last=False)


#: Experiments on a page.
PAGE_SIZE = 50
_ORDER = (*(one for one in TrialStatus if one not in OPEN_STATUSES), TrialStatus.RUNNING, TrialStatus.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedExperiment:
    """A row of the list."""

    entry: Entry
    status: ExperimentStatus
    at_work: bool
    hold: Hold | None = None
    errors: tuple[str, ...] = ()
    #: None: unknown.
    summary: ListSummary | None = field(default=None, repr=False)
    #: The best so far, as in `best_results`.
    course: tuple[float, ...] = ()
    #: Active time in milliseconds; None: unknown.
    exec_ms: int | None = None

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of started trials by status, ended ones first; statuses without trials are left out."""
        counts = self.summary.counts if self.summary else {}
        return {status: counts[status] for status in _ORDER if counts.get(status)}

    @property
    def ended(self) -> int:
        return ended(self.summary.counts) if self.summary else 0

    @property
    def of(self) -> int:
        """The maximum number of trials, or without a maximum the number created."""
        return (self.summary.max_trial_number or self.summary.trials_made) if self.summary else 0

    @property
    def best(self) -> float | None:
        return self.summary.best.value if self.summary and self.summary.best else None

    @property
    def spark(self) -> str:
        return formats.spark_points(self.course)

    @property
    def has_open_trials(self) -> bool:
        """Whether trials may be running; True if unknown."""
        return self.summary is None or has_open(self.summary.counts)

    @property
    def may_stop(self) -> bool:
        return self.at_work or self.status is ExperimentStatus.VIEWED

    @property
    def may_resume(self) -> bool:
        return not self.at_work or self.hold is not None or self.status is ExperimentStatus.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPage:
    """A page of the list."""

    rows: Sequence[ListedExperiment]
    #: Numbers of all experiments, and of those that match.
    total: int
    matching: int
    archived: int
    pages: int
    #: Options of the filter.
    platforms: Sequence[str]
    tags: Sequence[str]
    statuses: Sequence[ExperimentStatus]


async def read(context: PagesContext, query: ListQuery) -> ListedPage:
    """The page of the list for a query. Raises StoreError if the index cannot be read."""
    entries = await context.commands.entries()
    context.results.keep_only({entry.id for entry in entries})
    matching = [entry for entry in entries if _matches(entry, query)]
    rows = await _page_of(context, matching, query)
    return ListedPage(
        rows=rows,
        total=len(entries),
        matching=len(matching),
        archived=sum(entry.labels.is_archived for entry in entries),
        pages=max(1, -(-len(matching) // PAGE_SIZE)),
        platforms=sorted({name for entry in entries for name in _platforms(entry)}),
        tags=sorted({tag for entry in entries for tag in entry.labels.tags}),
        statuses=sorted({entry.status for entry in entries}),
    )


async def _page_of(context: PagesContext, entries: list[Entry], query: ListQuery) -> list[ListedExperiment]:
    shown = slice((query.page - 1) * PAGE_SIZE, query.page * PAGE_SIZE)
    if (by_entry := _BY_ENTRY.get(query.sort)) is not None:
        chosen = sorted(entries, key=by_entry, reverse=query.is_reversed)[shown]
        rows = await _rows(context, chosen)
    else:
        value, sign = _BY_ROW[query.sort], -1 if query.is_reversed else 1
        rows = sorted(await _rows(context, entries), key=lambda row: _last_without(value(row), sign))[shown]
    told = [(row, context.commands.live(row.entry.id)) for row in rows]
    return await asyncio.to_thread(  # accesses the disk
        lambda: [row if row.at_work else _with_problems(row, live, context.data_directory) for row, live in told]
    )


#: Orders that need only the index.
_BY_ENTRY: Mapping[str, Callable[[Entry], Any]] = {
    "created": lambda entry: (entry.created_ms, entry.id),
    "name": lambda entry: (entry.title.lower(), entry.id),
    "status": lambda entry: (entry.status, entry.created_ms),
    "platform": lambda entry: (entry.platform, entry.created_ms),
}
_BY_ROW: Mapping[str, Callable[[ListedExperiment], float | None]] = {
    "best": lambda row: row.best,
    "trials": lambda row: row.ended,
    "duration": lambda row: row.exec_ms,
}


def _last_without(value: float | None, sign: int) -> tuple[bool, float]:
    is_missing = value is None or math.isnan(value)
    return is_missing, 0.0 if value is None or is_missing else sign * value


def _matches(entry: Entry, query: ListQuery) -> bool:
    if (query.archived, entry.labels.is_archived) in (("", True), ("only", False)):
        return False
    if query.statuses and entry.status not in query.statuses:
        return False
    if query.platform and query.platform not in _platforms(entry):
        return False
    if query.tag and query.tag not in entry.labels.tags:
        return False
    text = "\n".join((entry.id, entry.name or "", entry.labels.notes, *entry.labels.tags)).lower()
    return all(word in text for word in query.words)


def _platforms(entry: Entry) -> list[str]:
    return entry.platform.replace(",", " ").split()


# Rows


async def _rows(context: PagesContext, entries: Sequence[Entry]) -> list[ListedExperiment]:
    """Rows in the order of the entries; those of closed experiments use only the index."""
    is_open = [context.commands.at_work(entry.id) is not None for entry in entries]
    chosen = list(zip(entries, is_open, strict=True))
    closed = await asyncio.to_thread(lambda: [_closed_one(context.results, one) for one, open in chosen if not open])
    opened = await asyncio.gather(*(_open_one(context, one) for one, open in chosen if open))
    rows = {row.entry.id: row for row in (*closed, *opened)}
    return [rows[entry.id] for entry in entries]


def _closed_one(results: KnownResults, entry: Entry) -> ListedExperiment:
    summary = results.of(entry)
    return ListedExperiment(
        entry=entry,
        status=entry.status,
        at_work=False,
        summary=summary,
        course=summary.course if summary else (),
        exec_ms=summary.exec_ms if summary else None,
    )


def _with_problems(row: ListedExperiment, live: Live, directory: Path | None) -> ListedExperiment:
    """The row of a closed experiment with hold and errors that its database does not contain. Blocks."""
    hold = live.derived_hold
    told = tuple(filter(None, (hold.sentence if hold else "", live.problem)))
    return replace(row, hold=hold, errors=told or _missing(row.entry, directory))


def _missing(entry: Entry, directory: Path | None) -> tuple[str, ...]:
    """Errors of a closed experiment, such as a missing folder.

    Only folders on the index's own disk are checked: others may be slow.
    """
    if entry.trouble or entry.folder.path.parent != directory:
        return (entry.trouble,) if entry.trouble else ()
    try:
        entry.folder.require_database()
    except NotFound as error:
        return (f"{error}; delete the experiment to remove it from the list",)
    except StoreError as error:
        return (str(error),)
    return ()


async def _open_one(context: PagesContext, entry: Entry) -> ListedExperiment:
    """The row of an open experiment; with an error if it cannot be read."""
    live, now_ms = context.commands.live(entry.id), context.clock()

    def read(connection: Connection) -> ListedExperiment:
        found = overview.load(connection, live, now_ms)
        return ListedExperiment(
            entry=entry,
            status=found.row.status,
            at_work=True,
            hold=found.hold,
            errors=found.errors,
            summary=found.summary,
            course=best_results.load_course(connection, found.config, maximizes=found.summary.maximizes),
            exec_ms=found.exec_ms,
        )

    try:
        return await context.commands.read(entry.id, read)
    except NniManagerError as error:
        return ListedExperiment(entry=entry, status=entry.status, at_work=True, errors=(str(error),))


ROUTES = [Route("/", shared(_list, of_all), name="list"), Route("/stream", _stream)]
