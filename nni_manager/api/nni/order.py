"""Results leave after the list of trials that was asked for before them.

NNI's page asks for both at once and waits only for the results: it goes blank over those of a trial that it has not been
told of yet, and otherwise shows every trial as it was one refresh ago.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from nni_manager.api.nni.addressed import ROOT, experiment_of

#: Seconds that results wait at most: whoever asked for the trials may be slow to take them.
_MOST_WAIT_S = 1.0


class Ordered:
    """Pure ASGI, around the endpoints."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        #: By experiment: lists of trials under way.
        self._lists: dict[str, set[asyncio.Future[None]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == f"{ROOT}/trial-jobs" and scope["method"] == "GET":
            await self._noted(scope, receive, send)
            return
        if path.startswith(f"{ROOT}/metric-data") and (lists := self._lists.get(experiment_of(scope))):
            await asyncio.wait(set(lists), timeout=_MOST_WAIT_S)
        await self._app(scope, receive, send)

    async def _noted(self, scope: Scope, receive: Receive, send: Send) -> None:
        id_ = experiment_of(scope)
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lists = self._lists.setdefault(id_, set())
        lists.add(sent)
        try:
            await self._app(scope, receive, send)
        finally:
            sent.set_result(None)
            lists.discard(sent)
            if not lists:
                self._lists.pop(id_, None)
