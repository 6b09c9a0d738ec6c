"""All routes in one application. `app` serves it; the pages come to it from there, because they are strangers here."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from nni_manager.api import daemon, errors, events, experiments, health, logs, metrics, openapi, trials
from nni_manager.api.context import ApiContext
from nni_manager.api.guard import Guard

_ROUTES = (experiments, trials, metrics, logs, events, daemon, health)
_PROBES = ("/healthz", "/readyz")
OPENAPI = "/api/v1/openapi.json"
#: Where tools look first.
_USUAL_OPENAPI = "/openapi.json"


def create_application(
    context: ApiContext, *, token: str = "", host: str = "", pages: ASGIApp | None = None
) -> ASGIApp:  # fmt: skip
    """What every door serves: the API, and `pages` for all paths that are not the API's, behind one guard.

    `token` and `host` are the settings of the TCP doors.
    """
    api = create_api(context)
    inner = api if pages is None else _Split(api, pages)
    return Guard(inner, token=token, hosts=(host,) if host else ())


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
    return api


class _Split:
    """By path."""

    def __init__(self, api: ASGIApp, pages: ASGIApp) -> None:
        self._api = api
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path == _USUAL_OPENAPI:
            scope = {**scope, "path": OPENAPI, "raw_path": OPENAPI.encode()}
            path = OPENAPI
        is_api = path in _PROBES or path == "/api" or path.startswith("/api/")
        await (self._api if is_api else self._pages)(scope, receive, send)
