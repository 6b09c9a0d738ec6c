"""A relay between an adapter and a real API server, which can be cut, held up and counted at.

The adapter speaks TLS with the relay, the relay with the server; what goes through is left as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kubernetes_asyncio import client, config

from nni_manager.platform_kit.testing.middlebox import stop_accepting
from tests.certificates import Authority

_REQUEST = re.compile(rb"^(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1\r\n")
_CHUNK = 64 * 1024
_ADDRESS = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """Where the API server is, and how one speaks with it. `tls` None: in plain HTTP."""

    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None
    server_name: str | None

    @classmethod
    async def of(cls, kubeconfig: Path) -> Upstream:
        told = client.Configuration()
        await config.load_kube_config(str(kubeconfig), client_configuration=told)
        address = urlsplit(str(told.host))
        is_tls = address.scheme == "https"
        host = address.hostname or _ADDRESS
        return cls(
            host=host,
            port=address.port or (443 if is_tls else 80),
            path=address.path.rstrip("/"),
            tls=_context(told) if is_tls else None,
            server_name=(told.tls_server_name or host) if is_tls else None,
        )


def _context(told: client.Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=told.ssl_ca_cert)
    if not told.verify_ssl:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if told.cert_file:
        context.load_cert_chain(told.cert_file, told.key_file)
    return context


@dataclass(eq=False)
class _Connection:
    adapter: asyncio.StreamWriter
    server: asyncio.StreamWriter
    #: The next answer is lost, and the connection with it.
    is_lost: bool = False


class Relay:
    """Between `relay` and its end. `requests`: method and path with query, of all requests so far."""

    def __init__(self, upstream: Upstream, folder: Path) -> None:
        self._upstream = upstream
        self._signer = Authority(folder)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(*self._signer.issue(_ADDRESS, name="relay"))
        self._server: asyncio.Server | None = None
        self._port = 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._losing: re.Pattern[str] | None = None
        self._open: dict[_Connection, asyncio.Task[None]] = {}
        self.requests: list[tuple[str, str]] = []

    @property
    def address(self) -> str:
        return f"https://{_ADDRESS}:{self._port}{self._upstream.path}"

    @property
    def authority(self) -> Path:
        """The authority of its certificate."""
        return self._signer.file

    async def listen(self) -> None:
        """At the same port as before."""
        self._server = await asyncio.start_server(self._serve, _ADDRESS, self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Refuses connections from now on, and ends those that are open."""
        if self._server is not None:
            server, self._server = self._server, None
            await stop_accepting(server)
        self._flows.set()
        tasks = list(self._open.values())
        for connection in list(self._open):
            _abort(connection)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def restore(self) -> None:
        """Ends whatever was begun here."""
        self.let_go()
        self._losing = None
        if self._server is None:
            await self.listen()

    def hold_up(self) -> None:
        """Takes connections and requests, and lets nothing through."""
        self._flows.clear()

    def let_go(self) -> None:
        self._flows.set()

    def lose_answer(self, method: str, path: str) -> None:
        """Loses the answer to the next request of this method and path ending; the server carries it out."""
        self._losing = re.compile(rf"{method} [^?]*{re.escape(path)}(\?|$)")

    async def _serve(self, adapter_reader: asyncio.StreamReader, adapter: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            reader, server = await asyncio.open_connection(
                self._upstream.host,
                self._upstream.port,
                ssl=self._upstream.tls,
                server_hostname=self._upstream.server_name,
                limit=_CHUNK,
            )
        except OSError:
            adapter.transport.abort()
            return
        connection = _Connection(adapter, server)
        self._open[connection] = task
        await self._carry(connection, adapter_reader, reader)

    async def _carry(
        self, connection: _Connection, adapter: asyncio.StreamReader, server: asyncio.StreamReader
    ) -> None:
        """Both ways, until one side is over."""
        ways = [
            asyncio.create_task(self._to_server(connection, adapter)),
            asyncio.create_task(self._to_adapter(connection, server)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await _close(connection)
            self._open.pop(connection, None)

    async def _to_server(self, connection: _Connection, adapter: asyncio.StreamReader) -> None:
        while data := await adapter.read(_CHUNK):
            await self._flows.wait()
            self._note(connection, data)
            connection.server.write(data)
            await connection.server.drain()

    def _note(self, connection: _Connection, data: bytes) -> None:
        if (found := _REQUEST.match(data)) is None:
            return
        method, path = found[1].decode(), found[2].decode()
        self.requests.append((method, path))
        if self._losing is not None and self._losing.match(f"{method} {path}"):
            self._losing, connection.is_lost = None, True

    async def _to_adapter(self, connection: _Connection, server: asyncio.StreamReader) -> None:
        while data := await server.read(_CHUNK):
            await self._flows.wait()
            if connection.is_lost:
                return _abort(connection)
            connection.adapter.write(data)
            await connection.adapter.drain()


async def _close(connection: _Connection) -> None:
    """What was written goes out first, as far as the other side takes it."""
    for writer in (connection.adapter, connection.server):
        writer.close()
    for writer in (connection.adapter, connection.server):
        with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.wait_closed()
        writer.transport.abort()


def _abort(connection: _Connection) -> None:
    for writer in (connection.adapter, connection.server):
        writer.transport.abort()


@contextlib.asynccontextmanager
async def relay(kubeconfig: Path, folder: Path) -> AsyncIterator[Relay]:
    """To the server of a kubeconfig. `folder`: empty, for its certificate."""
    made = Relay(await Upstream.of(kubeconfig), folder)
    await made.listen()
    try:
        yield made
    finally:
        await made.cut()
