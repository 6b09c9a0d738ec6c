"""The application of one endpoint: the experiment's page at its root, NNI's API and logs, and the page's own requests.

All paths are below the endpoint's prefix. Other experiments and the daemon's own routes are not served here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from nni_manager.api.nni.addressed import EXPERIMENT
from nni_manager.domain.endpoint import Endpoint

#: Paths of NNI's own page, which users may have bookmarked; redirected to the page.
_NNI_PAGES = ("/oview", "/detail", "/experiment")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointParts:
    """The applications behind every endpoint. `api` and `pages` are the service's, unguarded."""

    nni: ASGIApp
    api: ASGIApp
    pages: ASGIApp
    #: Puts the guard of a TCP listener in front of an application.
    guarded: Callable[[ASGIApp], ASGIApp]

    def build(self, experiment_id: str, endpoint: Endpoint) -> ASGIApp:
        return self.guarded(_Prefixed(_EndpointApplication(self, experiment_id), endpoint))


class _Prefixed:
    """Passes on requests below the prefix: `root_path` is the prefix, `path` stays whole."""

    def __init__(self, app: ASGIApp, endpoint: Endpoint) -> None:
        self._app = app
        self._root = endpoint.path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"].startswith(f"{self._root}/"):
            await self._app({**scope, "root_path": self._root}, receive, send)
        elif scope["path"] == self._root and scope["method"] in ("GET", "HEAD"):
            await RedirectResponse(_with_query(f"{self._root}/", scope), 301)(scope, receive, send)
        else:
            await PlainTextResponse(f'Outside prefix "{self._root}"', 404)(scope, receive, send)


class _EndpointApplication:
    """The application of an endpoint: the page or an API, by the path below the prefix."""

    def __init__(self, parts: EndpointParts, experiment_id: str) -> None:
        self._parts = parts
        self._id = experiment_id
        self._page = f"/experiments/{experiment_id}"
        self._api = f"/api/v1/experiments/{experiment_id}/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        root = scope["root_path"]
        path = scope["path"][len(root) :]
        scope = {**scope, "state": {**scope.get("state", {}), EXPERIMENT: self._id}}
        await self._route(path, scope["method"])(self._moved(path, scope), receive, send)

    def _route(self, path: str, method: str) -> ASGIApp:
        if _is_below(path, "/api/v1/nni") or _is_below(path, "/logs"):
            return self._parts.nni
        if path.startswith(self._api) and method in ("GET", "HEAD"):
            return self._parts.api
        if path == "/" or _is_below(path, self._page) or path.startswith("/static/"):
            return self._parts.pages
        if path in _NNI_PAGES and method in ("GET", "HEAD"):
            return _to_page
        return _nothing

    def _moved(self, path: str, scope: Scope) -> Scope:
        """The scope for an application at the root: the page gets the prefix as `root_path`; NNI's API, which makes no
        links, gets paths without it."""
        if path == "/":
            return _with_path(scope, f"{scope['root_path']}{self._page}")
        if _is_below(path, "/api/v1/nni") or _is_below(path, "/logs"):
            return {**_with_path(scope, path), "root_path": ""}
        return scope


def _is_below(path: str, base: str) -> bool:
    return path == base or path.startswith(f"{base}/")


def _with_path(scope: Scope, path: str) -> Scope:
    return {**scope, "path": path, "raw_path": path.encode()}


def _with_query(path: str, scope: Scope) -> str:
    query = scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


async def _to_page(scope: Scope, receive: Receive, send: Send) -> None:
    await RedirectResponse(f"{scope['root_path']}/", 307)(scope, receive, send)


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    sentence = f"there is nothing at {scope['path']}; this port serves one experiment's page and NNI's API of it"
    await JSONResponse({"error": sentence}, 404)(scope, receive, send)
