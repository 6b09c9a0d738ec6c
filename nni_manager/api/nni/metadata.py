"""The metadata that NNI's clients read of an experiment before they speak to it: its listener, process and folder."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nni_manager.api.context import ApiContext
from nni_manager.api.nni.addressed import addressed
from nni_manager.store import nni_registry
from nni_manager.store.index import Entry


class MetadataAnswers:
    """Entries as NNI's registry of experiments has them."""

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
        pid = await context.placeholders.pid(entry.id) if entry.id == asked else None
        service = [
            urlsplit(listener["address"]).port for listener in context.listeners() if listener["kind"] == "service"
        ]
        port = service[0] if service else None
        described = nni_registry.describe(entry, service_port=port, url=context.service.endpoint_url)
        return described if pid is None else {**described, "pid": pid}
