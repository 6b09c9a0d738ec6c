"""All routes in one application. `app` serves it; the pages come to it from there, because they are strangers here."""

from __future__ import annotations

import re

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from nni_manager.api import (
    code,
    daemon,
    errors,
    events,
    experiments,
    health,
    logs,
    metrics,
    openapi,
    platforms,
    prometheus,
    trials,
)
from nni_manager.api.context import ApiContext
from nni_manager.api.guard import Guard
from nni_manager.api.head import HeadAsGet
from nni_manager.api.nni.addressed import EXPERIMENT
from nni_manager.api.nni.application import create_nni_application
from nni_manager.domain.ids import EXPERIMENT_ID

_ROUTES = (experiments, trials, metrics, platforms, logs, events, code, daemon, prometheus, health)
#: Where tools look for them, outside of the API's own paths.
_PROBES = ("/healthz", "/readyz", "/metrics")
OPENAPI = "/api/v1/openapi.json"
#: Where tools look first.
_USUAL_OPENAPI = "/openapi.json"
#: An experiment, and what NNI serves at its root.
_NNI = re.compile(rf"/experiments/({EXPERIMENT_ID.pattern})((?:/api/v1/nni|/logs)(?:/.*)?)")


def create_application(
    context: ApiContext, *, token: str = "", host: str = "", pages: ASGIApp | None = None, api: ASGIApp | None = None,
    nni: ASGIApp | None = None,
) -> ASGIApp:  # fmt: skip
    """What every door serves: the API, each experiment's NNI API below ``/experiments/<id>``, and `pages` for all
    paths that are neither's, behind one guard.

    `token` and `host` are the settings of the TCP doors. `api`, `nni`: where they were made already.
    """
    api = api or create_api(context)
    inner = _Split(api, pages or api, nni or create_nni_application(context))
    return Guard(inner, token=token, hosts=(host,) if host else (), larger={f"{code.PREFIX}/": code.BODY_LIMIT})


def create_api(context: ApiContext) -> FastAPI:
    """The API alone, unguarded."""
    api = FastAPI(
        title="nni_manager", version=context.version, openapi_url=OPENAPI, docs_url=None,
        redoc_url=None, redirect_slashes=False,
    )  # fmt: skip
    api.state.context = context
    for module in _ROUTES:
        api.include_router(module.router)
    errors.install(api)
    openapi.install(api)
    api.add_middleware(HeadAsGet)
    return api


class _Split:
    """By path."""

    def __init__(self, api: ASGIApp, pages: ASGIApp, nni: ASGIApp) -> None:
        self._api = api
        self._pages = pages
        self._nni = nni

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path == _USUAL_OPENAPI:
            scope = {**scope, "path": OPENAPI, "raw_path": OPENAPI.encode()}
            path = OPENAPI
        if (found := _NNI.fullmatch(path)) is not None:
            state = {**scope.get("state", {}), EXPERIMENT: found[1]}
            scope = {**scope, "path": found[2], "raw_path": found[2].encode(), "state": state}
            return await self._nni(scope, receive, send)
        is_api = path in _PROBES or path == "/api" or path.startswith("/api/")
        await (self._api if is_api else self._pages)(scope, receive, send)
