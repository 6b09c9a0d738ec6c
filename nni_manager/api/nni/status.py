"""`check-status`, whose answer is cached because clients poll it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Scope, Send

from nni_manager.api.context import ApiContext
from nni_manager.api.nni.addressed import ROOT, experiment_of, json_text
from nni_manager.domain.experiment import PASSING_HOLDS, ExperimentStatus, StoredExperiment
from nni_manager.scheduler.experiments.commands import Readable
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.store.experiment import experiments
from nni_manager.store.index import overview
from nni_manager.store.index.index import Entry
from nni_manager.store.index.overview import Live
from nni_manager.store.nni import nni_registry

_PATH = f"{ROOT}/check-status"
#: Bare text instead of JSON, which NNI's clients take as a request to retry.
NOT_READY = "INITIALIZING"


#: What an answer depends on: number of changes, or the index entry of a closed experiment; and the endpoint's problem.
_State = tuple[int | Entry | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    state: _State
    body: bytes
    headers: list[tuple[bytes, bytes]]


class StatusAnswers:
    """Cache of the answer per experiment, until something changes."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._kept: WeakKeyDictionary[Readable, _Kept] = WeakKeyDictionary()

    async def answer_at_once(self, scope: Scope, send: Send) -> bool:
        """Answer from the cache if possible; return whether it did."""
        if scope["path"] != _PATH or scope["method"] != "GET":
            return False
        id_ = experiment_of(scope)
        read = self._context.commands.readable_at_once(id_)
        kept = self._kept.get(read) if read is not None else None
        if read is None or kept is None or kept.state != self._state(id_, read):
            return False
        await send({"type": "http.response.start", "status": 200, "headers": kept.headers})
        await send({"type": "http.response.body", "body": kept.body})
        return True

    async def show(self, _: Request, context: ApiContext, id_: str) -> Response:
        """The status of the experiment: ``{"status", "errors"}``."""
        experiment = context.commands.at_work(id_)
        if experiment is None:
            return await self._show_closed(id_)
        state = self._state(id_, experiment)
        response = _response(await experiment.database.read(experiments.load), self._context.commands.live(id_))
        return self._keep(experiment, state, response)

    def _keep(self, read: Readable, state: _State, response: Response) -> Response:
        self._kept[read] = _Kept(state=state, body=bytes(response.body), headers=response.raw_headers)
        return response

    def _state(self, id_: str, read: Readable) -> _State:
        """The state of an answer. For a closed experiment, it is the index entry; the reader watches the files."""
        service = self._context.commands
        if isinstance(read, OpenExperiment):
            return read.changes.count, service.problem(id_)
        return service.known_entry(id_), service.problem(id_)

    async def _show_closed(self, id_: str) -> Response:
        service = self._context.commands
        entry, live = await service.entry(id_), service.live(id_)
        if entry.is_open and not (entry.status.is_closed or live.problem or live.derived_hold):
            return Response(NOT_READY, media_type="text/html")
        status = entry.status if entry.status.is_closed else None  # the experiment's database may not have it
        found: list[Readable] = []  # the last entry is the database that was read

        def choose(read: Readable) -> Callable[[sqlite3.Connection], Response]:
            found.append(read)
            return lambda c: _response(experiments.load(c), live, status)

        response = await service.read_by(id_, choose)
        return self._keep(found[-1], (entry, live.problem), response)


def _response(row: StoredExperiment, live: Live, status: ExperimentStatus | None = None) -> Response:
    return json_text(json.dumps({"status": status or _status(row, live), "errors": overview.errors(row, live)}))


def _status(row: StoredExperiment, live: Live) -> ExperimentStatus:
    """The status in NNI's terms, which lack a hold.

    A hold is reported as an error: a program that waits for the end would otherwise wait forever for a user's action.
    """
    held = overview.hold(row, live)
    if held is None or held.code in PASSING_HOLDS or row.status.is_closed:
        return row.status
    return ExperimentStatus.ERROR


async def show_metadata(request: Request, context: ApiContext, id_: str) -> Response:
    """The entry of the experiment, in the format of NNI's list of experiments."""
    return JSONResponse(await _described(context, await context.commands.entry(id_), id_))


async def list_metadata(request: Request, context: ApiContext, id_: str) -> Response:
    """The experiments of this daemon, oldest first."""
    entries = await context.commands.entries()
    return JSONResponse([await _described(context, entry, id_) for entry in entries])


async def _described(context: ApiContext, entry: Entry, asked: str) -> dict[str, Any]:
    """An entry of the list. Only the requested experiment has a process id, because clients do not use others."""
    pid = await context.placeholders.pid(entry.id) if entry.id == asked else None
    ports = (urlsplit(listener["address"]).port for listener in context.listeners() if listener["kind"] == "service")
    described = nni_registry.describe(entry, service_port=next(ports, None), url=context.commands.endpoint_url)
    return described if pid is None else {**described, "pid": pid}
