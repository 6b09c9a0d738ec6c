"""The sockets that clients come through, opened and closed at run time, all served by one uvicorn server.

uvicorn's own `serve` takes the signals, exits the process when a port is busy and ticks ten times a second; here `app`
owns signals and sockets, a busy port is an error with the name of who holds it, and the clock ticks once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import psutil
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGIApplication

from nni_manager.domain.errors import AlreadyOwned, InvalidInput

#: How long answers under way may take at shutdown, in seconds.
_GRACE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """`kind`: control or service. `address`: a socket's path, or ``http://host:port``."""

    kind: str
    address: str


class _Server(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Doors:
    """Opened one by one, closed together. Needs a running loop."""

    def __init__(self, application: ASGIApp) -> None:
        self._config = uvicorn.Config(
            cast(ASGIApplication, application),
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
        self._open: list[Door] = []
        self._sockets: list[Path] = []
        self._clock: asyncio.Task[None] | None = None

    @property
    def open(self) -> tuple[Door, ...]:
        return tuple(self._open)

    async def open_control(self, path: Path) -> None:
        """A Unix socket that only its owner may open. The caller holds the data directory's lock."""
        path.unlink(missing_ok=True)  # noqa: ASYNC240 (once, at start)
        mask = os.umask(0o177)
        try:
            server = await asyncio.get_running_loop().create_unix_server(self._protocol, str(path))
        finally:
            os.umask(mask)
        self._sockets.append(path)
        await self._add(server, Door(kind="control", address=str(path)))

    async def open_service(self, host: str, port: int) -> None:
        """A TCP port. Raises AlreadyOwned, naming who holds it, or InvalidInput for an address that is not ours."""
        try:
            server = await asyncio.get_running_loop().create_server(self._protocol, host, port)
        except OSError as error:
            if error.errno == 98:
                raise AlreadyOwned(f"port {port} is in use by {_holder(port)}; choose another with --port") from None
            raise InvalidInput(f"{host}:{port} cannot be listened on: {error.strerror or error}") from None
        bound = server.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        await self._add(server, Door(kind="service", address=f"http://{shown}:{bound}"))

    async def close(self) -> None:
        """Refuses new requests, gives those under way a moment. Idempotent."""
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        for server in self._server.servers:
            server.close()
        for connection in list(self._server.server_state.connections):
            connection.shutdown()
        if self._server.server_state.tasks:
            await asyncio.wait(self._server.server_state.tasks, timeout=_GRACE_S)
        for task in self._server.server_state.tasks:
            task.cancel()
        for path in self._sockets:
            path.unlink(missing_ok=True)
        self._open.clear()

    async def _add(self, server: asyncio.Server, door: Door) -> None:
        self._server.servers.append(server)
        self._open.append(door)
        if self._clock is None:
            await self._server.on_tick(0)
            self._clock = asyncio.create_task(self._tick(), name="server clock")

    async def _tick(self) -> None:
        """Keeps the Date header right."""
        while True:
            await asyncio.sleep(1)
            await self._server.on_tick(0)

    def _protocol(self) -> asyncio.Protocol:
        return self._config.http_protocol_class(  # type: ignore[call-arg]
            config=self._config, server_state=self._server.server_state, app_state=self._server.lifespan.state
        )


def _holder(port: int) -> str:
    """Who listens on a port, as far as we may know."""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f"process {connection.pid} ({name})"
    return "another process"
