"""What NNI's clients read of experiments before they speak to one: its door, its process, where it lies."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nni_manager.api.context import ApiContext
from nni_manager.api.nni.addressed import addressed
from nni_manager.api.nni.presence import Presences
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.view import View
from nni_manager.store.index import Entry


class MetadataAnswers:
    """Entries as NNI's registry of experiments has them."""

    def __init__(self, context: ApiContext) -> None:
        self._presences = Presences(context.service)

    async def show(self, request: Request) -> Response:
        """The experiment's own."""
        context, id_ = addressed(request)
        return JSONResponse(await self._described(context, await context.service.entry(id_), id_))

    async def list_all(self, request: Request) -> Response:
        """Of all experiments of this daemon, oldest first."""
        context, id_ = addressed(request)
        entries = await context.service.entries()
        return JSONResponse([await self._described(context, entry, id_) for entry in entries])

    async def _described(self, context: ApiContext, entry: Entry, asked: str) -> dict[str, Any]:
        """With a process only where the client can want it: of the experiment that it asked."""
        experiment = context.service.at_work(entry.id) if entry.id == asked else None
        pid = await self._presences.pid(experiment) if experiment is not None else None
        return _entry(entry) | _door(context, entry) | ({} if pid is None else {"pid": pid})


def _entry(entry: Entry) -> dict[str, Any]:
    started_ms = entry.created_ms if entry.launched_ms is None else entry.launched_ms
    return {
        "id": entry.id, "startTime": started_ms, "endTime": "N/A" if entry.ended_ms is None else entry.ended_ms,
        "status": entry.status, "platform": entry.platform, "experimentName": entry.name, "tag": [],
        "logDir": str(entry.folder.path.parent),
    }  # fmt: skip


def _door(context: ApiContext, entry: Entry) -> dict[str, Any]:
    """Its view, else its place on the service; no port where there is neither."""
    service = [urlsplit(door["address"]).port for door in context.doors() if door["kind"] == "service"]
    view = entry.view
    if view is None and service and service[0] and entry.status is not ExperimentStatus.STOPPED:
        view = View(port=service[0], prefix=f"experiments/{entry.id}")
    if view is None:
        return {"prefixUrl": None, "webuiUrl": []}
    url = context.service.view_url(view).rstrip("/")
    return {"port": view.port, "prefixUrl": view.prefix or None, "webuiUrl": [url]}
