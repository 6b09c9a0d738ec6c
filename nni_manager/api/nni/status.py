"""`check-status`: the call that every client makes first and then again and again, so it costs next to nothing."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope, Send

from nni_manager.api.context import ApiContext
from nni_manager.api.nni.addressed import ROOT, addressed, experiment_of, json_text
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.scheduler.open_experiment import OpenExperiment
from nni_manager.store import experiments, overview
from nni_manager.store.experiments import ExperimentRow
from nni_manager.store.index import Entry
from nni_manager.store.overview import Live

_PATH = f"{ROOT}/check-status"
#: Bare text where NNI's clients expect JSON: to them it means that they should ask again.
NOT_READY = "INITIALIZING"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    #: Of changes when it was read, and what is known of doors, which changes without them.
    state: tuple[int, str]
    body: bytes
    headers: list[tuple[bytes, bytes]]


class StatusAnswers:
    """Keeps the answer of every experiment at work until something changes."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._kept: WeakKeyDictionary[OpenExperiment, _Kept] = WeakKeyDictionary()

    async def answer_at_once(self, scope: Scope, send: Send) -> bool:
        """Answers what can be answered from memory; whether that was so."""
        if scope["path"] != _PATH or scope["method"] != "GET":
            return False
        experiment = self._context.service.at_work(experiment_of(scope))
        kept = self._kept.get(experiment) if experiment is not None else None
        if experiment is None or kept is None or kept.state != self._state(experiment):
            return False
        await send({"type": "http.response.start", "status": 200, "headers": kept.headers})
        await send({"type": "http.response.body", "body": kept.body})
        return True

    async def show(self, request: Request) -> Response:
        """``{"status", "errors"}``."""
        _, id_ = addressed(request)
        experiment = self._context.service.at_work(id_)
        if experiment is None:
            return await self._show_closed(id_)
        state = self._state(experiment)
        response = _response(await experiment.database.read(experiments.load), self._context.service.live(id_))
        self._kept[experiment] = _Kept(state=state, body=bytes(response.body), headers=response.raw_headers)
        return response

    def _state(self, experiment: OpenExperiment) -> tuple[int, str]:
        return experiment.changes.count, self._context.service.problem(experiment.id)

    async def _show_closed(self, id_: str) -> Response:
        entry = await self._context.service.entry(id_)
        live = self._context.service.live(id_)
        if entry.is_open and not (entry.status.is_closed or live.problem or live.derived_hold):
            return Response(NOT_READY, media_type="text/html")
        return await self._context.service.read(id_, lambda c: _response_of_closed(c, entry, live))


def _response(row: ExperimentRow, live: Live, status: ExperimentStatus | None = None) -> Response:
    return json_text(json.dumps({"status": status or row.status, "errors": overview.errors(row, live)}))


def _response_of_closed(connection: sqlite3.Connection, entry: Entry, live: Live) -> Response:
    closed = entry.status if entry.status.is_closed else None  # its own database need not know it
    return _response(experiments.load(connection), live, closed)
