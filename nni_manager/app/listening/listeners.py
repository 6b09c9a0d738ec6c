"""The sockets that clients come through, opened and closed at run time, all served by one uvicorn server.

uvicorn's own `serve` takes the signals, exits the process when a port is busy and ticks ten times a second; here `app`
owns signals and sockets, and the clock ticks once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn._types import ASGIApplication

from nni_manager.app.listening.http_connection import HttpConnection
from nni_manager.app.listening.ports import Reserved
from nni_manager.app.listening.reserves import Connections
from nni_manager.domain.clock import LoopLag

#: How long answers under way may take at shutdown, in seconds.
_GRACE_S = 0.5
#: The answer to a request that had not been answered then.
_ENDS = "the daemon was told to end while it worked on this request, and gave it up; ask again when a daemon runs"
#: Between two looks whether what was written has gone out.
_FLUSH_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """`kind`: control, service, endpoint or trials. `address`: a socket's path, or ``http://host:port``."""

    kind: str
    address: str

    @property
    def port(self) -> int:
        """The TCP port; 0: it is a socket."""
        return 0 if self.kind == "control" else int(self.address.rpartition(":")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Control:
    path: Path
    #: The socket's own, by which another one in its place is recognised.
    file: os.stat_result
    server: asyncio.Server


class _Server(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


#: Seconds without a request for which a trial runner's connection is kept: longer than from one heartbeat to the next,
#: so that it does not shake hands for each.
_TRIALS_KEEP_ALIVE_S = 15.0


class Listeners:
    """Opened one by one, closed together, or a TCP port alone. Needs a running loop.

    One server serves them all; a request goes to the application of the port it came in by.
    """

    def __init__(self, application: ASGIApp, *, lag: LoopLag | None = None) -> None:
        """`application`: what every listener serves that has none of its own. `lag`: told how late each tick is."""
        self._lag = lag or LoopLag()
        self._application = application
        self._by_port: dict[int, ASGIApp] = {}
        self._servers: dict[int, list[asyncio.Server]] = {}
        self._config = uvicorn.Config(
            cast(ASGIApplication, self._dispatch),
            http=HttpConnection,
            interface="asgi3",  # uvicorn takes a bound method for something older
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
        )
        self._server = _Server(self._config)
        self._config.load()
        self._server.lifespan = self._config.lifespan_class(self._config)
        self._server.servers = []
        self._open: list[Listener] = []
        self._connections_open = Connections()
        self._control: _Control | None = None
        self._clock: asyncio.Task[None] | None = None

    @property
    def open(self) -> tuple[Listener, ...]:
        return tuple(self._open)

    async def open_control(self, path: Path) -> None:
        """A Unix socket that only its owner may open, in place of the one there was. The caller holds the data
        directory's lock."""
        self._close_control()
        path.unlink(missing_ok=True)  # noqa: ASYNC240 (once, at start)
        mask = os.umask(0o177)
        try:
            server = await asyncio.get_running_loop().create_unix_server(self._protocol, str(path))
        finally:
            os.umask(mask)
        self._control = _Control(path=path, file=os.stat(path), server=server)
        await self._add(server)
        self._open.append(Listener(kind="control", address=str(path)))

    @property
    def control(self) -> Path | None:
        """The path of the control socket; None: it is not open."""
        return self._control.path if self._control is not None else None

    def is_control_there(self) -> bool:
        """Whether clients find it: its file may have been removed."""
        try:
            return self._control is not None and os.path.samestat(self._control.file, os.stat(self._control.path))
        except OSError:
            return False

    async def open_service(self, reserved: Reserved) -> None:
        """A TCP port. Whoever came since it was reserved is served now."""
        await self._open_port("service", reserved)

    async def open_trial_listener(
        self, reserved: Reserved, application: ASGIApp, tls: ssl.SSLContext | None = None
    ) -> None:
        """A TCP port that serves `application` and nothing else."""
        self._by_port[reserved.port] = application
        await self._open_port("trials", reserved, tls, _TRIALS_KEEP_ALIVE_S)

    async def open_endpoint(self, reserved: Reserved, application: ASGIApp) -> None:
        """Opens an endpoint: one experiment's page and API at a port of their own."""
        self._by_port[reserved.port] = application
        await self._open_port("endpoint", reserved)

    def exchange(self, reserved: Reserved, application: ASGIApp) -> None:
        """Has an open port serve another application from now on."""
        self._by_port[reserved.port] = application

    async def close_port(self, reserved: Reserved) -> None:
        """Closes one TCP port and the connections that came in by it; answers under way get a moment."""
        for server in self._servers.pop(reserved.port, ()):
            server.close()
            if server in self._server.servers:  # else all were closed before
                self._server.servers.remove(server)
        left = self._connections(reserved.port)
        for connection in left:
            connection.shutdown()
        asyncio.get_running_loop().call_later(_GRACE_S, _close_transports, left)
        self._by_port.pop(reserved.port, None)
        self._open = [listener for listener in self._open if listener.address != reserved.address]

    async def close(self) -> None:
        """Refuses new requests, gives those under way a moment. Idempotent."""
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        for server in self._server.servers:
            server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._answer_pending()
        await self._end_pending()
        self._close_control()
        for closed in (self._server.servers, self._servers, self._open, self._by_port):
            closed.clear()

    def _close_control(self) -> None:
        """Connections that came in by it stay."""
        control, self._control = self._control, None
        if control is None:
            return
        control.server.close()
        if control.server in self._server.servers:  # else all were closed before
            self._server.servers.remove(control.server)
        self._open = [listener for listener in self._open if listener.kind != "control"]
        with contextlib.suppress(OSError):
            control.path.unlink(missing_ok=True)

    def _connections(self, port: int) -> list[HttpConnection]:
        """The connections that came in by a TCP port."""
        return [
            connection
            for connection in self._server.server_state.connections
            if isinstance(connection, HttpConnection)
            and connection.transport is not None
            and connection.transport.get_extra_info("sockname")[1:2] == (port,)
        ]

    async def _answer_pending(self) -> None:
        """Requests may still come in: on connections that were accepted when the listeners closed."""
        state = self._server.server_state
        while state.tasks or state.connections:
            for connection in list(state.connections):
                connection.shutdown()
            if state.tasks:
                await asyncio.wait(state.tasks, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(_FLUSH_S)

    async def _end_pending(self) -> None:
        """Cancels the requests under way; what they undo of theirs needs the stores, which close next."""
        tasks = tuple(self._server.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE_S)

    async def _add(self, server: asyncio.Server) -> None:
        self._server.servers.append(server)
        if self._clock is None:
            await self._server.on_tick(0)
            self._clock = asyncio.create_task(self._tick(), name="server clock")

    async def _tick(self) -> None:
        """Keeps the Date header right, and clients from taking their time."""
        while True:
            due_s = asyncio.get_running_loop().time() + 1
            await asyncio.sleep(1)
            now_s = asyncio.get_running_loop().time()
            self._lag.note(now_s - due_s)
            await self._server.on_tick(0)
            self._close_slow(now_s)

    def _close_slow(self, now_s: float) -> None:
        for connection in list(self._server.server_state.connections):
            if isinstance(connection, HttpConnection) and connection.is_too_slow(now_s):
                connection.transport.close()

    async def _open_port(
        self, kind: str, reserved: Reserved, tls: ssl.SSLContext | None = None, keep_alive_s: float | None = None
    ) -> None:
        servers = self._servers.setdefault(reserved.port, [])
        for each in reserved.sockets:
            # not as whoever wants it opened: what clients cause would stand in that experiment's log
            opening = asyncio.create_task(
                self._serve(each, tls, keep_alive_s), name="opening a port", context=contextvars.Context()
            )
            server = await opening
            servers.append(server)
            await self._add(server)
        self._open.append(Listener(kind=kind, address=reserved.address))

    async def _serve(
        self, socket: socket.socket, tls: ssl.SSLContext | None, keep_alive_s: float | None
    ) -> asyncio.Server:
        protocol = functools.partial(self._protocol, keep_alive_s)
        return await asyncio.get_running_loop().create_server(protocol, sock=socket, ssl=tls)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on by its port, not its address: a listener on all interfaces is reached by any of them."""
        port = (scope.get("server") or ("", 0))[1] or 0
        try:
            await self._by_port.get(port, self._application)(scope, receive, send)
        except asyncio.CancelledError:  # by `close` alone
            with contextlib.suppress(RuntimeError):  # a stream has begun its answer
                await JSONResponse({"error": _ENDS}, status_code=503)(scope, receive, send)

    def _protocol(self, keep_alive_s: float | None = None) -> asyncio.Protocol:
        return HttpConnection(
            config=self._config,
            server_state=self._server.server_state,
            app_state=self._server.lifespan.state,
            connections=self._connections_open,
            keep_alive_s=keep_alive_s,
        )


def _close_transports(connections: list[HttpConnection]) -> None:
    for connection in connections:
        if connection.transport is not None and not connection.transport.is_closing():
            connection.transport.close()
