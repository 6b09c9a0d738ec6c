"""Results of trials, in four cuts, and the export of parameters with final results."""

from __future__ import annotations

import re
import sqlite3

from starlette.requests import Request
from starlette.responses import Response

from nni_manager.api.nni.addressed import addressed, listed
from nni_manager.api.nni.growing_list import GrowingLists, ListResponse, Room
from nni_manager.store import nni_answers

#: A bound of sequence ids; what is longer is none.
_NUMBER = re.compile(r"-?[0-9]{1,1000}", re.ASCII)
#: No sequence id is above it, and SQLite takes it: a bound beyond means no bound.
_MOST = 2**63 - 1


class MetricAnswers:
    """Keeps the results of every experiment that is read, those that will not change."""

    def __init__(self, room: Room) -> None:
        self._lists = GrowingLists(lambda _: MetricRows(), room, end=nni_answers.END)

    async def list_all(self, request: Request) -> Response:
        """In the order they came; ``?type=``: only those of it."""
        if "type" in request.query_params:
            return await _cut(request, trial_id="")
        context, id_ = addressed(request)
        return ListResponse(await context.service.read_by(id_, lambda read: self._lists.of(read).read))

    async def of_trial(self, request: Request) -> Response:
        """None for a trial that nobody knows."""
        return await _cut(request, trial_id=request.path_params["id"])

    async def of_range(self, request: Request) -> Response:
        """Of trials whose sequence ids lie between two, both included."""
        bounds = [str(request.path_params[name]) for name in ("first", "last")]
        if not all(map(_NUMBER.fullmatch, bounds)):
            return listed(b"")
        first, last = (max(-_MOST, min(int(bound), _MOST)) for bound in bounds)
        context, id_ = addressed(request)
        return listed(await context.service.read(id_, lambda c: nni_answers.metrics_of_range(c, first, last)))

    async def latest(self, request: Request) -> Response:
        """All final ones, and the last intermediate one of each trial."""
        context, id_ = addressed(request)
        return listed(await context.service.read(id_, nni_answers.latest_metrics))

    async def export(self, request: Request) -> Response:
        """Trials that succeeded, each with its parameters and final result."""
        context, id_ = addressed(request)
        return listed(await context.service.read(id_, nni_answers.export))


class MetricRows:
    """All results, for `GrowingList`."""

    def settled(self, connection: sqlite3.Connection) -> int:
        return nni_answers.settled_metrics(connection)

    def items(self, connection: sqlite3.Connection, *, start: int, end: int) -> bytes:
        return nni_answers.metrics(connection, start=start, end=end)


async def _cut(request: Request, *, trial_id: str) -> Response:
    context, id_ = addressed(request)
    type_ = request.query_params.get("type", "")
    return listed(await context.service.read(id_, lambda c: nni_answers.metrics(c, trial_id=trial_id, type=type_)))
