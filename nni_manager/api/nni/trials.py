"""Trials and metrics: lists, one trial, counts by status; adding and ending a trial.

NNI's clients poll whole lists, which only grow at their end. SQLite assembles items that can no longer change once;
they are cached while the experiment is open. So ten thousand trials are as fast as ten. The whole list of a closed
experiment is cached while its database is open, within a limit for all of them.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from nni_manager.api.context import ApiContext
from nni_manager.api.nni.addressed import (
    json_text,
    listed,
    nothing,
    read_json,
    require_writable,
    trial_of,
)
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.scheduler.experiments.closed import ClosedExperiment
from nni_manager.scheduler.experiments.commands import Readable
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.store.experiment import trials
from nni_manager.store.nni import nni_answers

#: Maximum wait for a trial's end, in seconds: NNI's clients wait 20 for an answer.
_MOST_WAIT_S = 15.0
#: Seconds from the end of its grace period until a trial's end is recorded.
_KNOWN_AFTER_S = 1.0


class TrialAnswers:
    """Answers about trials, with a cached list per experiment."""

    def __init__(self, cache: ListCache) -> None:
        self._lists = GrowingLists(lambda read: trial_rows(str(read.folder.trials)), cache)

    async def list_all(self, request: Request, context: ApiContext, id_: str) -> Response:
        """The trials by sequence id; ``?status=``: only those with this status."""
        status = request.query_params.get("status")
        if status is not None:
            directory = str((await context.commands.folder(id_)).trials)
            wanted = status if status in list(TrialStatus) else "-"
            return listed(await context.commands.read(id_, lambda c: nni_answers.trials(c, directory, status=wanted)))
        return ListResponse(await context.commands.read_by(id_, lambda read: self._lists.of(read).read))

    async def show(self, request: Request, context: ApiContext, id_: str) -> Response:
        """A trial, by its id."""
        directory, trial_id = str((await context.commands.folder(id_)).trials), request.path_params["id"]
        return json_text(await context.commands.read(id_, lambda c: nni_answers.trial(c, directory, trial_id)))

    async def statistics(self, request: Request, context: ApiContext, id_: str) -> Response:
        """The number of trials by status."""
        return listed(await context.commands.read(id_, nni_answers.statistics))

    async def add(self, request: Request, context: ApiContext, id_: str) -> Response:
        """Add a trial whose parameters are the whole body."""
        await require_writable(context, id_)
        parameters = await read_json(request)
        if not isinstance(parameters, dict):
            raise InvalidInput("the body must be the parameters: a JSON object of names and values")
        added = await context.commands.add_trial(id_, parameters)
        return JSONResponse({"sequenceId": added["sequenceId"]})

    async def kill(self, request: Request, context: ApiContext, id_: str) -> Response:
        """Stop a trial; answer after its end or its grace period."""
        await require_writable(context, id_)
        trial_id = trial_of(request)
        await context.commands.kill_trial(id_, trial_id)
        experiment = context.commands.at_work(id_)
        if experiment is not None:
            await _wait_for_end(experiment, trial_id)
        return nothing()


async def _wait_for_end(experiment: OpenExperiment, trial_id: str) -> None:
    patience_s = min(_MOST_WAIT_S, experiment.spec.grace_period_s + _KNOWN_AFTER_S)
    with suppress(TimeoutError), experiment.changes.watch() as news:
        async with asyncio.timeout(patience_s):
            while not await experiment.database.read(lambda c: _has_ended(c, trial_id)):
                await news.wait()
                news.clear()


def _has_ended(connection: sqlite3.Connection, trial_id: str) -> bool:
    status = trials.status(connection, trial_id)
    return status is None or status.is_final


#: A bound of sequence ids; longer text is ignored.
_NUMBER = re.compile(r"-?[0-9]{1,1000}", re.ASCII)
#: SQLite's greatest integer; a bound above it means no bound.
_MOST = 2**63 - 1


class MetricAnswers:
    """Answers about results, with cached final ones per experiment."""

    def __init__(self, cache: ListCache) -> None:
        self._lists = GrowingLists(lambda _: METRIC_ROWS, cache)

    async def list_all(self, request: Request, context: ApiContext, id_: str) -> Response:
        """The metrics in the order of arrival; ``?type=``: only those of this type."""
        if "type" in request.query_params:
            return await _cut(request, context, id_, trial_id="")
        return ListResponse(await context.commands.read_by(id_, lambda read: self._lists.of(read).read))

    async def of_trial(self, request: Request, context: ApiContext, id_: str) -> Response:
        """The metrics of a trial; an unknown trial has none."""
        return await _cut(request, context, id_, trial_id=request.path_params["id"])

    async def of_range(self, request: Request, context: ApiContext, id_: str) -> Response:
        """The metrics of trials with sequence ids in a range, both ends included."""
        bounds = [str(request.path_params[name]) for name in ("first", "last")]
        if not all(map(_NUMBER.fullmatch, bounds)):
            return listed(b"")
        first, last = (max(-_MOST, min(int(bound), _MOST)) for bound in bounds)
        return listed(await context.commands.read(id_, lambda c: nni_answers.metrics_of_range(c, first, last)))

    async def latest(self, request: Request, context: ApiContext, id_: str) -> Response:
        """All final metrics, and the last intermediate one of each trial."""
        return listed(await context.commands.read(id_, nni_answers.latest_metrics))

    async def export(self, request: Request, context: ApiContext, id_: str) -> Response:
        """Successful trials, each with its parameters and final result."""
        return listed(await context.commands.read(id_, nni_answers.export))


async def _cut(request: Request, context: ApiContext, id_: str, *, trial_id: str) -> Response:
    type_ = request.query_params.get("type", "")
    return listed(await context.commands.read(id_, lambda c: nni_answers.metrics(c, trial_id=trial_id, type=type_)))


#: Maximum cached size of a list of an open experiment, in bytes.
MOST_KEPT = 64 * 1024 * 1024
#: Maximum cached size of all lists of closed experiments, in bytes.
MOST_KEPT_OF_CLOSED = 64 * 1024 * 1024
#: Maximum number of pieces of a cached list; above it, they are joined.
_MOST_PIECES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Items as comma-separated JSON text, in the order of a growing id."""

    #: An id below which items no longer change and none is added.
    settled: Callable[[sqlite3.Connection], int]
    #: The items with ids in [`start`, `end`), both given by name; empty: none.
    items: Callable[..., bytes]


METRIC_ROWS = Rows(settled=nni_answers.settled_metrics, items=nni_answers.metrics)


def trial_rows(directory: str) -> Rows:
    """`directory`: parent of the trials' folders."""
    return Rows(settled=nni_answers.settled_trials, items=partial(nni_answers.trials, folder=directory))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    #: The first id that is not included.
    end: int = 0
    pieces: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))

    def plus(self, piece: bytes, end: int) -> _Kept:
        pieces = (*self.pieces, piece) if piece else self.pieces
        if len(pieces) > _MOST_PIECES:
            pieces = (b",".join(pieces),)
        return _Kept(end=end, pieces=pieces)


class ListCache:
    """An LRU cache of the lists of closed experiments, limited by bytes."""

    def __init__(self, size: int) -> None:
        self._free = size
        #: List → its bytes, in order of last use.
        self._lists: OrderedDict[GrowingList, int] = OrderedDict()
        self._lock = threading.Lock()

    def use(self, used: GrowingList, size: int) -> None:
        """Make `used` the most recent list, and evict the least recently used ones above the limit."""
        with self._lock:
            self._free += self._lists.pop(used, 0) - size
            self._lists[used] = size
            while self._free < 0:
                oldest, its_size = self._lists.popitem(last=False)
                self._free += its_size
                oldest.forget()


class GrowingLists:
    """One cached list per experiment."""

    def __init__(self, rows: Callable[[Readable], Rows], cache: ListCache) -> None:
        """`cache`: for closed experiments."""
        self._rows = rows
        self._cache = cache
        self._lists: WeakKeyDictionary[Readable, GrowingList] = WeakKeyDictionary()

    def of(self, read: Readable) -> GrowingList:
        found = self._lists.get(read)
        if found is None:
            cache = self._cache if isinstance(read, ClosedExperiment) else None
            found = self._lists[read] = GrowingList(self._rows(read), cache)
        return found


class GrowingList:
    """A cached list. Thread-safe."""

    def __init__(self, rows: Rows, cache: ListCache | None = None) -> None:
        """`cache`: for a closed experiment, which no longer changes."""
        self._rows = rows
        self._cache = cache
        self._kept = _Kept()
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Drop the cached list; the next read assembles it again."""
        self._kept = _Kept()

    def read(self, connection: sqlite3.Connection) -> Sequence[bytes]:
        """The pieces of the list, to be joined by commas."""
        if self._cache is not None:
            return self._read_whole(connection, self._cache)
        connection.execute("BEGIN")  # one snapshot for both queries
        try:
            kept = self._extended(connection)
            rest = self._rows.items(connection, start=kept.end, end=nni_answers.END)
        finally:
            connection.execute("ROLLBACK")
        return (*kept.pieces, rest) if rest else kept.pieces

    def _read_whole(self, connection: sqlite3.Connection, cache: ListCache) -> Sequence[bytes]:
        kept = self._kept
        if not kept.end:
            kept = kept.plus(self._rows.items(connection, start=0, end=nni_answers.END), nni_answers.END)
            self._kept = kept
        cache.use(self, kept.size)
        return kept.pieces

    def _extended(self, connection: sqlite3.Connection) -> _Kept:
        kept, settled = self._kept, self._rows.settled(connection)
        if settled <= kept.end:
            return kept
        kept = kept.plus(self._rows.items(connection, start=kept.end, end=settled), settled)
        with self._lock:
            if kept.end > self._kept.end and kept.size <= MOST_KEPT:
                self._kept = kept
        return kept


class ListResponse(Response):
    """A JSON list, sent in its cached pieces without copying."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        size = sum(map(len, pieces)) + max(0, len(pieces) - 1) + 2
        super().__init__(headers={"Content-Type": "application/json; charset=utf-8", "Content-Length": str(size)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._framed():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"]", "more_body": False})

    def _framed(self) -> Iterator[bytes]:
        yield b"["
        for number, piece in enumerate(self._pieces):
            if number:
                yield b","
            yield piece
