"""The API's application: all routes, their description (OpenAPI), and HEAD for every GET."""

from __future__ import annotations

import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nni_manager.api import analysis, code, daemon, errors, events, experiments, logs, platforms, submission, trials
from nni_manager.api.access.guard import OPEN_PATHS, Guard, LocalUsers
from nni_manager.api.context import ApiContext
from nni_manager.api.nni.addressed import EXPERIMENT
from nni_manager.api.nni.application import create_nni_application
from nni_manager.domain.ids import EXPERIMENT_ID


class HeadAsGet:
    """Answers HEAD with an application that supports GET only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            return await self._app(scope, receive, send)
        is_answered = False

        async def send_head(message: Message) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        async def receive_until_answered() -> Message:
            """Report a disconnect after the head is sent, so that an endless stream ends."""
            return {"type": "http.disconnect"} if is_answered else await receive()

        await self._app({**scope, "method": "GET"}, receive_until_answered, send_head)


DESCRIPTION = """
One daemon serves many experiments. JSON keys are camelCase; times are milliseconds since the epoch. Errors are
`{"error": "<sentence>"}`. The control socket needs no login. A TCP listener with a token requires
`Authorization: Bearer <token>`; without a token, it admits only the daemon's user and root.
"""
TAGS = [
    {"name": "experiments", "description": "Searches, each created from one experiment file."},
    {"name": "trials", "description": "Evaluations of sets of parameters."},
    {"name": "results", "description": "Results that trials report."},
    {"name": "logs", "description": "Files that trials and the manager write."},
    {"name": "platforms", "description": "Training services, for all experiments that use them."},
    {"name": "daemon", "description": "The process behind this API."},
]
_EVERYWHERE = {
    "401": "The token is missing or wrong.",
    "403": "The Host or Origin header names another site, another user of the machine sent no token, or the token may"
    " only read and the call is a change.",
    "500": "Internal error of the manager; see its log.",
}
#: Routes that refuse unknown query parameters.
PREFIX = "/api/v1/"
_BEARER = "token"
_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "The token of `NNI_MANAGER_TOKEN` or `--token-file`; for GET also that of `NNI_MANAGER_READ_TOKEN`"
    " or `--read-token-file`. A listener without a token checks the user of the "
    "connection; the control socket needs no token.",
}
_REPLACED = ("HTTPValidationError", "ValidationError")


def install(api: FastAPI) -> None:
    """Makes `api.openapi()` return our description, built on first use."""

    def openapi() -> dict[str, Any]:
        if not api.openapi_schema:
            api.openapi_schema = _describe(api)
        return api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]  # the documented way


def _describe(api: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=api.title, version=api.version, description=DESCRIPTION.strip(), routes=api.routes, tags=TAGS
    )
    document["components"]["schemas"] |= submission.SCHEMAS
    document["components"]["securitySchemes"] = {_BEARER: _SCHEME}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path.startswith(PREFIX):
                operation["responses"].setdefault("400", {"description": "Unknown query parameter."})
            _state_refusals(operation["responses"], is_probe=path in OPEN_PATHS)
            operation["security"] = [] if path in OPEN_PATHS else [{_BEARER: []}, {}]
    for name in _REPLACED:
        document["components"]["schemas"].pop(name, None)
    return document


def _state_refusals(responses: dict[str, Any], *, is_probe: bool) -> None:
    responses.pop("422", None)  # FastAPI's own; ours is 400
    schema = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status, meaning in _EVERYWHERE.items():
        if not is_probe or status == "500":
            responses[status] = {"description": meaning}
    for status, response in responses.items():
        if status >= "400":
            response["content"] = schema  # regardless of the content type of a success


#: In the order of matching: the paths `…/events` before `…/{id}`.
_ROUTERS = (
    events.router,
    experiments.router,
    trials.tensorboards_router,
    trials.router,
    trials.metrics_router,
    platforms.router,
    logs.router,
    logs.files_router,
    code.router,
    daemon.router,
    daemon.root_router,
    analysis.router,  # its query contains names chosen by users; it refuses unknown ones itself
)
#: At the usual paths of probes, outside the API's prefix.
_PROBES = ("/healthz", "/readyz", "/metrics")
OPENAPI = "/api/v1/openapi.json"
#: The path that tools try first.
_USUAL_OPENAPI = "/openapi.json"
#: Matches (experiment id, path of NNI's API at its root).
_NNI = re.compile(rf"/experiments/({EXPERIMENT_ID.pattern})((?:/api/v1/nni|/logs)(?:/.*)?)")


def create_application(
    context: ApiContext,
    *,
    token: str = "",
    read_token: str = "",
    host: str = "",
    pages: ASGIApp | None = None,
    api: ASGIApp | None = None,
    nni: ASGIApp | None = None,
    users: LocalUsers | None = None,
) -> ASGIApp:
    """The application of every listener, behind one guard.

    It serves the API, each experiment's NNI API below ``/experiments/<id>``, and `pages` for all other paths. `token`,
    `read_token`, `host`: settings of the TCP listeners. `users`: admitted while no token is set. `api`, `nni`: existing
    applications; None: created here.
    """
    api = api or create_api(context)
    inner = _Split(api, pages or api, nni or create_nni_application(context))
    larger = {f"{code.PREFIX}/": code.BODY_LIMIT}
    hosts = (host,) if host else ()
    return Guard(inner, token=token, read_token=read_token, hosts=hosts, larger=larger, users=users)


def create_api(context: ApiContext) -> FastAPI:
    """The API without the guard."""
    api = FastAPI(
        title="nni_manager",
        version=context.version,
        openapi_url=OPENAPI,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        routes=[
            route for router in _ROUTERS for route in router.routes
        ],  # including the routers would create all routes again
    )
    api.state.context = context
    errors.install(api)
    install(api)
    api.add_middleware(HeadAsGet)
    return api


class _Split:
    """Routes a request by its path: to the API, an experiment's NNI API, or the pages."""

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
