"""The server in front of a cluster: HTTP or TLS, authentication, and the answer."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from tests.fakes.kubernetes import access, discovery, kubeconfig, refusals, requests
from tests.fakes.kubernetes.access import MASTERS, User
from tests.fakes.kubernetes.answers import Answers
from tests.fakes.kubernetes.cluster import Cluster
from tests.fakes.kubernetes.control import Control
from tests.fakes.kubernetes.jobs import kind as jobs
from tests.fakes.kubernetes.kubeconfig import Credentials
from tests.fakes.kubernetes.settings import Settings

log = logging.getLogger(__name__)
ADMIN = "kubernetes-admin"
_OPEN = ("/version", "/healthz", "/livez", "/readyz")
_MOST_BODY = 3 * 1024 * 1024
#: Loop iterations until an accepted connection reaches its handler, and an aborted one is closed.
_TURNS = 10


class Server:
    """`async with Server(settings) as server`: serve until the end of the block, which also ends the pods."""

    def __init__(self, settings: Settings) -> None:
        self.cluster = Cluster(settings)
        self._settings = settings
        self._answers = Answers(self.cluster)
        self.control = Control(self)
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None
        self.port = 0
        self._admin_token = ""

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        return f"{'https' if self._settings.tls else 'http'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.port = self._known_port()
        await self.listen()
        self.cluster.address = self.url
        self._admin_token = self.cluster.tokens.issue(ADMIN, (MASTERS,))
        await self.cluster.start()

    async def close(self) -> None:
        await self.cluster.close()
        await self.stop_listening()

    def kubeconfig(self, path: Path, credentials: Credentials | None = None, namespace: str = "default") -> Path:
        """Write a kubeconfig, by default of the administrator."""
        authority = self.cluster.authority.certificate if self._settings.tls else None
        return kubeconfig.written(path, self.url, authority, credentials or self.admin(), namespace)

    def admin(self) -> Credentials:
        return Credentials(token=self._admin_token)

    async def listen(self) -> None:
        """Listen, after an outage on the same port."""
        app = web.Application(client_max_size=_MOST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        context = self.cluster.authority.server_context() if self._settings.tls else None
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", self.port))
        bound.listen(512)
        self.port = bound.getsockname()[1]
        (self._settings.folder / "port").write_text(str(self.port))
        self._site = web.SockSite(self._runner, bound, ssl_context=context)
        await self._site.start()

    async def stop_listening(self) -> None:
        """Refuse new connections and end open ones; pods and controllers continue."""
        if self._runner is None:
            return
        self.cluster.watches.break_all()
        await self.cluster.execs.break_all()
        runner, self._runner = self._runner, None
        server = runner.server
        _abort(server)
        await runner.cleanup()
        for _ in range(_TURNS):  # a connection that was accepted as the port closed
            await asyncio.sleep(0)
            _abort(server)

    def _known_port(self) -> int:
        if self._settings.port:
            return self._settings.port
        with suppress(OSError, ValueError):
            return int((self._settings.folder / "port").read_text())
        return 0

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except refusals.Refused as refused:
            self.cluster.verbs.warnings.clear()
            return web.json_response(refused.status(), status=refused.code, headers=refused.headers)
        except (asyncio.CancelledError, web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            log.exception("%s %s", request.method, request.path)
            told = refusals.Refused(500, "InternalError", f"Internal error occurred: {error!r}")
            return web.json_response(told.status(), status=500)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/_control/"):
            return await self.control.answer(request)
        fault = self.cluster.faults.take(request.method, request.path_qs)
        if fault is not None and fault.drop == "before":
            return _dropped(request)
        await self.cluster.faults.before(fault)
        answer = await self._of_path(request)
        return _dropped(request) if fault is not None and fault.drop == "after" else answer

    async def _of_path(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/")
        if path == "/version":
            return web.json_response(discovery.version(self._settings.minor_version))
        if path in _OPEN:
            return web.Response(text="ok")
        user = self._user(request)
        if request.method == "GET" and (told := discovery.described(self.cluster.kinds, path)) is not None:
            return web.json_response(told)
        if request.method == "GET" and path == jobs.DESCRIPTION_PATH:
            return web.json_response(jobs.description(self._settings.minor_version))
        if request.method == "POST" and path.endswith("reviews"):
            given = await requests.body(request) or {}
            if (review := discovery.review(self.cluster.rules, user, path, given)) is not None:
                return web.json_response(review, status=201)
        if not path.startswith(("/api/", "/apis/")):
            raise refusals.no_such_resource()
        return await self._answers.answer(request, user)

    def _user(self, request: web.Request) -> User:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer" and token:
            return self.cluster.tokens.user(token.strip())
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        if certificate:
            return access.of_certificate(certificate)
        raise refusals.unauthorized()

    def ready_line(self, config: Path) -> str:
        """The control route, for tests that started this server as a process."""
        return json.dumps({"server": self.url, "kubeconfig": str(config), "control": f"{self.url}/_control/"})


def _dropped(request: web.Request) -> web.Response:
    """End the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _abort(server: web.Server | None) -> None:
    for handler in list(server.connections if server else ()):
        if handler.transport is not None:
            handler.transport.abort()
