"""The experiments' endpoints: TCP ports, each opened and closed with an experiment.

An endpoint serves the experiment's page at its root, NNI's API and logs, and the page's requests, all below its prefix.
It serves neither other experiments nor the daemon's own routes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from nni_manager.api.nni.addressed import EXPERIMENT
from nni_manager.app.listening import ports
from nni_manager.app.listening.listeners import Listeners
from nni_manager.app.listening.ports import Reserved, http_address, reserve, reserve_in_thread
from nni_manager.config.settings import Settings
from nni_manager.domain.endpoint import Endpoint, EndpointWish
from nni_manager.domain.errors import AlreadyOwned, Conflict, InvalidInput, NniManagerError
from nni_manager.platform_kit.tasks import ended

#: Paths of NNI's own page, which users may have bookmarked; redirected to the page.
_NNI_PAGES = ("/oview", "/detail", "/experiment")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointParts:
    """The applications of every endpoint. `api` and `pages` are the service's, without guard."""

    nni: ASGIApp
    api: ASGIApp
    pages: ASGIApp
    #: Puts the guard of a TCP listener in front of an application.
    guarded: Callable[[ASGIApp], ASGIApp]

    def build(self, experiment_id: str, endpoint: Endpoint) -> ASGIApp:
        return self.guarded(_Prefixed(_EndpointApplication(self, experiment_id), endpoint))


class _Prefixed:
    """Passes requests below the prefix: `root_path` is the prefix, `path` is unchanged."""

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
        """The scope for an application at the root.

        The page gets the prefix as `root_path`. NNI's API, which creates no links, gets paths without the prefix.
        """
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
    sentence = f"there is nothing at {scope['path']}; this port serves an experiment's page and its NNI API"
    await JSONResponse({"error": sentence}, 404)(scope, receive, send)


log = logging.getLogger(__name__)

#: Seconds between two attempts to open a recorded endpoint: no event reports a free port.
_AGAIN_S = 2.0
#: Ports, from the first one up, that are tried when none was requested.
_NEXT_PORTS = 200
#: Wildcard address → the loopback address that local users connect to.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (named, not bound)
_OWN_LISTENERS = {"service": "this daemon's service", "trials": "this daemon's trial listener"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    endpoint: Endpoint
    reserved: Reserved


class EndpointSockets:
    """The `Endpoints` of the scheduler, as sockets. `allowed`: False with ``--no-listen``."""

    def __init__(self, settings: Settings, *, allowed: bool, insecure: bool = False) -> None:
        self._settings = settings
        self._allowed = allowed
        self._insecure = insecure
        self._listeners: asyncio.Future[tuple[Listeners, EndpointParts]] = asyncio.get_running_loop().create_future()
        self._turn = asyncio.Lock()
        self._opened: dict[str, _Opened] = {}
        self._restoring: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}
        #: Experiments with recorded endpoints that were not tried yet.
        self._untried: set[str] = set()
        self._all_tried = asyncio.Event()
        self._all_tried.set()

    def bind(self, listeners: Listeners, parts: EndpointParts) -> None:
        """Set the daemon's listeners and the applications to serve; `open` waits for this."""
        self._listeners.set_result((listeners, parts))

    @property
    def first_port(self) -> int:
        """The port of the first opened endpoint; 0: none."""
        return next((opened.endpoint.port for opened in self._opened.values()), 0)

    async def open(self, experiment_id: str, wish: EndpointWish) -> Endpoint | None:
        listeners, _ = await asyncio.shield(self._listeners)
        is_shown = any(listener.kind == "service" for listener in listeners.open)
        if not wish.is_explicit and (is_shown or not self._allowed):
            return None
        self._check()
        async with self._turn:
            endpoint = await (
                self._open_any(experiment_id, wish) if wish.port is None else self._open(experiment_id, wish)
            )
            await self._end_restoring(experiment_id)  # only now: if no other endpoint opens, the recorded one is kept
        return endpoint

    def restore(self, experiment_id: str, endpoint: Endpoint) -> None:
        self._untried.add(experiment_id)
        self._all_tried.clear()
        restoring = asyncio.create_task(self._restore(experiment_id, endpoint), name=f"endpoint of {experiment_id}")
        self._restoring[experiment_id] = restoring

    async def close(self, experiment_id: str) -> None:
        await self._end_restoring(experiment_id)
        async with self._turn:
            opened = self._opened.pop(experiment_id, None)
            if opened is not None:
                listeners, _ = await self._listeners
                await listeners.close_port(opened.reserved)
                log.info("endpoint on %s is closed", opened.reserved.address, extra={"action": "listener"})

    def url(self, endpoint: Endpoint) -> str:
        host = _EVERYWHERE.get(self._settings.host, self._settings.host)
        return f"{http_address(host, endpoint.port)}{endpoint.path}"

    def problem(self, experiment_id: str) -> str:
        return self._problems.get(experiment_id, "")

    async def tried(self) -> None:
        """Wait until every recorded endpoint is open or has a problem."""
        await self._all_tried.wait()

    async def end(self) -> None:
        """Stop restoring endpoints at the daemon's end. Open ports close with all listeners."""
        await asyncio.gather(*map(self._end_restoring, tuple(self._restoring)))

    # Opening

    def _check(self) -> None:
        """Check that endpoints can be opened. Raises Conflict or InvalidInput."""
        if not self._allowed:
            raise Conflict(
                "this daemon was started with --no-listen and opens no port; start it without that"
                " option, or request no port"
            )
        if not self._insecure:
            ports.check_exposure(self._settings)

    async def _open_any(self, experiment_id: str, wish: EndpointWish) -> Endpoint:
        first = self._settings.port if wish.first is None else wish.first
        tried = range(first, min(first + _NEXT_PORTS, 65536)) if first else (0,)
        for port in tried:
            try:
                return await self._open(experiment_id, EndpointWish(port=port, prefix=wish.prefix))
            except AlreadyOwned:
                continue
        raise AlreadyOwned(f"ports {tried[0]} to {tried[-1]} are all in use; choose another with --port")

    async def _open(self, experiment_id: str, wish: EndpointWish) -> Endpoint:
        assert wish.port is not None
        listeners, parts = await self._listeners
        before = self._opened.get(experiment_id)
        if before is not None and before.endpoint.port == wish.port:
            reserved = before.reserved
        else:
            names = {listener.port: _OWN_LISTENERS.get(listener.kind, "") for listener in listeners.open}
            names |= {opened.endpoint.port: f"the endpoint of experiment {id}" for id, opened in self._opened.items()}
            if wish.port and names.get(wish.port):
                raise AlreadyOwned(f"port {wish.port} is in use by {names[wish.port]}; choose another with --port")
            reserved = await reserve_in_thread(partial(reserve, self._settings.host, wish.port))
        endpoint = Endpoint(port=reserved.port, prefix=wish.prefix)
        application = parts.build(experiment_id, endpoint)
        if before is not None and before.reserved is reserved:
            listeners.exchange(reserved, application)
        else:
            await _open_whole(listeners, reserved, application)
            log.info("endpoint of %s on %s", experiment_id, self.url(endpoint), extra={"action": "listener"})
        self._opened[experiment_id] = _Opened(endpoint=endpoint, reserved=reserved)
        if before is not None and before.reserved is not reserved:
            await listeners.close_port(before.reserved)
        return endpoint

    # Restoring

    async def _restore(self, experiment_id: str, endpoint: Endpoint) -> None:
        await asyncio.shield(self._listeners)
        wish = EndpointWish(port=endpoint.port, prefix=endpoint.prefix)
        while not await self._try_again(experiment_id, wish):  # noqa: ASYNC110 - no event reports a free port
            await asyncio.sleep(_AGAIN_S)
        self._problems.pop(experiment_id, None)
        self._restoring.pop(experiment_id, None)

    async def _try_again(self, experiment_id: str, wish: EndpointWish) -> bool:
        try:
            self._check()
            async with self._turn:
                await self._open(experiment_id, wish)
        except (NniManagerError, OSError) as error:
            self._note(experiment_id, f"its endpoint cannot be reopened: {_reason(error)}")
            return False
        finally:
            self._mark_tried(experiment_id)
        return True

    def _mark_tried(self, experiment_id: str) -> None:
        self._untried.discard(experiment_id)
        if not self._untried:
            self._all_tried.set()

    def _note(self, experiment_id: str, sentence: str) -> None:
        if self._problems.get(experiment_id) != sentence:
            log.error("experiment %s: %s", experiment_id, sentence, extra={"action": "listener"})
            self._problems[experiment_id] = sentence

    async def _end_restoring(self, experiment_id: str) -> None:
        restoring = self._restoring.pop(experiment_id, None)
        self._problems.pop(experiment_id, None)
        if restoring is not None:
            await ended(restoring)
            self._mark_tried(experiment_id)


async def _open_whole(listeners: Listeners, reserved: Reserved, application: ASGIApp) -> None:
    """Open an endpoint; on failure, close the port, because no record of it would remain."""
    try:
        await listeners.open_port("endpoint", reserved, application)
    except BaseException:
        await listeners.close_port(reserved)
        reserved.give_back()
        raise


def _reason(error: NniManagerError | OSError) -> str:
    """The error's message without advice on options, for a restored endpoint."""
    sentence = str(error)
    if isinstance(error, AlreadyOwned | InvalidInput):
        return f"{sentence.partition('; choose')[0]}; it is tried again"
    return sentence
