"""Resource Manager, blob storage and a managed identity endpoint on one port, with network faults."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote

from tests.fakes.aml.answers import Answer, Lost, Refused, arm_error, blob_error
from tests.fakes.aml.assets import signature
from tests.fakes.aml.blobs import Blobs
from tests.fakes.aml.workspace import CONTAINER, Workspace

TOKEN_PATH = "/msi/token"
_TICK_S = 0.05


class Server(ThreadingHTTPServer):
    """`tokens`: valid tokens; the identity endpoint issues the first. Empty: no identity."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, workspace: Workspace, tokens: list[str], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.workspace, self.tokens = workspace, tokens
        workspace.address = f"http://127.0.0.1:{self.server_address[1]}"

    def service_actions(self) -> None:
        self.workspace.advance()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self._send(self._answer(unquote(path), dict(parse_qsl(query, keep_blank_values=True)), body))
        except Refused as refused:
            self._send(refused.answer)
        except Lost:
            self.close_connection = True

    do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self, path: str, query: dict[str, str], body: bytes) -> Answer:
        workspace = self.server.workspace
        while workspace.faults.outage == "hang" and path != TOKEN_PATH:
            if _has_left(self.connection):
                raise Lost
            time.sleep(_TICK_S)
        headers = dict(self.headers.items())
        return answer(workspace, self.server.tokens, self.command, path, query, headers, body)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(len(answer.data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


def answer(
    workspace: Workspace,
    tokens: Sequence[str],
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    """The answer of the service that `path` belongs to. Raises Refused and Lost."""
    told = {name.lower(): value for name, value in headers.items()}
    if path == TOKEN_PATH:
        return _token(tokens, query, told)
    if workspace.faults.outage == "refuse":
        raise arm_error(503, "ServiceUnavailable", "The service is temporarily unavailable.")
    if workspace.faults.outage:
        raise Lost
    if not path.startswith("/subscriptions/"):
        return _storage(workspace, tokens, method, path, query, told, body)
    if told.get("authorization", "").removeprefix("Bearer ") not in tokens:
        challenge = 'Bearer authorization_uri="https://login.windows.net/common", error="invalid_token"'
        raise arm_error(401, "InvalidAuthenticationToken", "The access token is invalid.", WWW_Authenticate=challenge)
    if not f"{path}/".startswith(f"{workspace.resource}/"):
        raise arm_error(404, "ResourceNotFound", f"The Resource {path} was not found.")
    rest = path.removeprefix(workspace.resource).strip("/")
    return workspace.handle(method, rest, query, json.loads(body) if body else None)


def _storage(
    workspace: Workspace,
    tokens: Sequence[str],
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    container, _, name = path.lstrip("/").partition("/")
    if refused := _not_allowed(tokens, container, query, headers):
        return refused
    with workspace.lock:
        workspace.nodes.sync()
        if not (workspace.containers / container).is_dir():
            return blob_error(404, "ContainerNotFound", "The specified container does not exist.")
        blobs = workspace.blobs if container == CONTAINER else Blobs(workspace.containers / container)
        return blobs.handle(method, name, query, headers, body)


def _not_allowed(
    tokens: Sequence[str], container: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> Answer | None:
    """Authorize by a signed address of one container, or by a token with the header x-ms-version."""
    if "sig" in query:
        is_good = query["sig"] == signature(container)
        text = "Server failed to authenticate the request."
        return None if is_good else blob_error(403, "AuthenticationFailed", text)
    if headers.get("authorization", "").removeprefix("Bearer ") not in tokens:
        return blob_error(401, "InvalidAuthenticationInfo", "Authentication information is not in the correct format.")
    if "x-ms-version" not in headers:
        return blob_error(400, "MissingRequiredHeader", "A token needs the header x-ms-version.")
    return None


def _token(tokens: Sequence[str], query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
    if not headers.get("x-identity-header") or not tokens:
        return Answer.of({"error": "invalid_request", "error_description": "Identity not found"}, 400)
    until = int(time.time()) + 3600
    told = {"access_token": tokens[0], "expires_on": str(until), "resource": query.get("resource")}
    return Answer.of({**told, "token_type": "Bearer"})


def _has_left(connection: socket.socket) -> bool:
    """Whether the client has closed the connection."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


@contextmanager
def serving(workspace: Workspace, tokens: list[str], port: int = 0) -> Iterator[Server]:
    """Serve; jobs continue after it ends."""
    server = Server(workspace, tokens, port)
    thread = threading.Thread(target=server.serve_forever, args=(_TICK_S,), name="aml-fake", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
