"""The sockets for clients, opened and closed at run time, all served by one uvicorn server.

uvicorn's `serve` would take over the signals, exit the process if a port is busy and tick ten times a second. Here
`app` owns signals and sockets, and ticks once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn._types import ASGIApplication

from nni_manager.app.listening.http_connection import HttpConnection
from nni_manager.app.listening.ports import Reserved
from nni_manager.app.listening.reserves import Strangers
from nni_manager.domain.clock import LoopLag

#: Seconds for pending answers at shutdown.
_GRACE_S = 0.5
#: The answer to a request that is still pending after that.
_ENDS = "the daemon ended during this request; repeat it when a daemon runs again"
#: Turns of the loop within which a connection that was accepted reaches its protocol, and an aborted one is closed.
_TURNS = 10
#: Seconds between two checks whether the output has been sent.
_FLUSH_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """`kind`: control, service, endpoint or trials. `address`: a socket's path, or ``http://host:port``."""

    kind: str
    address: str

    @property
    def port(self) -> int:
        """The TCP port; 0: a Unix socket."""
        return 0 if self.kind == "control" else int(self.address.rpartition(":")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Control:
    path: Path
    #: `stat` of the socket's file, to recognise another file at its path.
    file: os.stat_result
    server: asyncio.Server


#: Seconds that an idle trial runner's connection is kept: longer than the heartbeat interval, so that heartbeats need
#: no new TLS handshake.
_TRIALS_KEEP_ALIVE_S = 15.0


class Listeners:
    """All listeners, opened one by one and closed together; a TCP port can be closed separately.

    Needs a running loop. One server serves all; a request goes to the application of its port.
    """

    def __init__(self, application: ASGIApp, *, lag: LoopLag | None = None) -> None:
        """`application`: served by every listener without its own. `lag`: records the delay of each tick."""
        self._lag = lag or LoopLag()
        self._application = application
        self._by_port: dict[int, ASGIApp] = {}
        self._servers: dict[int, list[asyncio.Server]] = {}
        self._config = uvicorn.Config(
            cast(ASGIApplication, self._dispatch),
            http=HttpConnection,
            interface="asgi3",  # uvicorn takes a bound method for an ASGI 2 application
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
        )
        self._server = uvicorn.Server(self._config)
        self._config.load()
        self._server.lifespan = self._config.lifespan_class(self._config)
        self._server.servers = []
        self._open: list[Listener] = []
        self._strangers = Strangers()
        self._control: _Control | None = None
        self._clock: asyncio.Task[None] | None = None

    @property
    def open(self) -> tuple[Listener, ...]:
        return tuple(self._open)

    async def open_control(self, path: Path) -> None:
        """Open a Unix socket that only its owner may connect to, replacing an existing one.

        The caller must hold the data directory's lock.
        """
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
        """The path of the control socket, or None if it is not open."""
        return self._control.path if self._control is not None else None

    def is_control_there(self) -> bool:
        """Whether the control socket's file is still in place."""
        try:
            return self._control is not None and os.path.samestat(self._control.file, os.stat(self._control.path))
        except OSError:
            return False

    async def open_port(
        self, kind: str, reserved: Reserved, application: ASGIApp | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Open a TCP port, and serve connections made since it was reserved.

        `kind`: of `Listener`; `application`: served instead of the daemon's.
        """
        if application is not None:
            self._by_port[reserved.port] = application
        keep_alive_s = _TRIALS_KEEP_ALIVE_S if kind == "trials" else None
        servers = self._servers.setdefault(reserved.port, [])
        for each in reserved.sockets:
            # in an empty context; else log lines about clients would go to the log of the port's experiment
            opening = asyncio.create_task(
                self._serve(each, tls, keep_alive_s), name="opening a port", context=contextvars.Context()
            )
            server = await opening
            servers.append(server)
            await self._add(server)
        self._open.append(Listener(kind=kind, address=reserved.address))

    def exchange(self, reserved: Reserved, application: ASGIApp) -> None:
        """Make an open port serve another application from now on."""
        self._by_port[reserved.port] = application

    async def close_port(self, reserved: Reserved) -> None:
        """Close a TCP port and its connections; pending answers get `_GRACE_S`."""
        for server in self._servers.pop(reserved.port, ()):
            server.close()
            if server in self._server.servers:  # else all were closed before
                self._server.servers.remove(server)
        left = [
            connection
            for connection in self._server.server_state.connections
            if isinstance(connection, HttpConnection)
            and connection.transport is not None
            and connection.transport.get_extra_info("sockname")[1:2] == (reserved.port,)
        ]
        for connection in left:
            connection.shutdown()
        asyncio.get_running_loop().call_later(_GRACE_S, _close_transports, left)
        self._by_port.pop(reserved.port, None)
        self._open = [listener for listener in self._open if listener.address != reserved.address]

    async def close(self) -> None:
        """Close all listeners; pending answers get `_GRACE_S`. Idempotent."""
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        for server in self._server.servers:
            server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._answer_pending()
        await self._end_pending()
        await self._abort_left()
        self._close_control()
        for closed in (self._server.servers, self._servers, self._open, self._by_port):
            closed.clear()

    def _close_control(self) -> None:
        """Closes the control socket; its connections stay open."""
        control, self._control = self._control, None
        if control is None:
            return
        control.server.close()
        if control.server in self._server.servers:  # else all were closed before
            self._server.servers.remove(control.server)
        self._open = [listener for listener in self._open if listener.kind != "control"]
        with contextlib.suppress(OSError):
            control.path.unlink(missing_ok=True)

    async def _answer_pending(self) -> None:
        """Wait for pending answers, including those to requests that still arrive on open connections."""
        state = self._server.server_state
        while state.tasks or state.connections:
            for connection in list(state.connections):
                connection.shutdown()
            if state.tasks:
                await asyncio.wait(state.tasks, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(_FLUSH_S)

    async def _end_pending(self) -> None:
        """Cancel pending requests now, because their clean-up needs the stores, which close next."""
        tasks = tuple(self._server.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE_S)

    async def _abort_left(self) -> None:
        """End connections that were accepted while their listener closed, and those that their peer keeps open."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            for connection in tuple(self._server.server_state.connections):
                if isinstance(connection, HttpConnection) and connection.transport is not None:
                    connection.transport.abort()

    async def _add(self, server: asyncio.Server) -> None:
        self._server.servers.append(server)
        if self._clock is None:
            await self._server.on_tick(0)
            self._clock = asyncio.create_task(self._tick(), name="server clock")

    async def _tick(self) -> None:
        """Renew the Date header and close slow connections, once a second."""
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

    async def _serve(
        self, socket: socket.socket, tls: ssl.SSLContext | None, keep_alive_s: float | None
    ) -> asyncio.Server:
        protocol = functools.partial(self._protocol, keep_alive_s)
        return await asyncio.get_running_loop().create_server(protocol, sock=socket, ssl=tls)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on by its port, because a listener on all interfaces has many addresses."""
        port = (scope.get("server") or ("", 0))[1] or 0
        try:
            await self._by_port.get(port, self._application)(scope, receive, send)
        except asyncio.CancelledError:  # only `close` cancels
            with contextlib.suppress(RuntimeError):  # the answer of a stream has begun
                await JSONResponse({"error": _ENDS}, status_code=503)(scope, receive, send)

    def _protocol(self, keep_alive_s: float | None = None) -> asyncio.Protocol:
        return HttpConnection(
            config=self._config,
            server_state=self._server.server_state,
            app_state=self._server.lifespan.state,
            strangers=self._strangers,
            keep_alive_s=keep_alive_s,
        )


def _close_transports(connections: list[HttpConnection]) -> None:
    for connection in connections:
        if connection.transport is not None and not connection.transport.is_closing():
            connection.transport.close()
