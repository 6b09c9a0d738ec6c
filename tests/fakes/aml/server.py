"""Resource Manager, blob storage and the endpoint of a managed identity on one port, with the faults of a network."""

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

from tests.fakes.aml.answers import Answer, Refused
from tests.fakes.aml.workspace import CONTAINER, Lost, Workspace

TOKEN_PATH = "/msi/token"


class Server(ThreadingHTTPServer):
    """`tokens`: those that are good; the first is the one that is given, none where there is none."""

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
        faults = self.server.workspace.faults
        if faults.outage == "hang" and path != TOKEN_PATH:
            while faults.outage == "hang" and not has_left(self.connection):
                time.sleep(0.05)
            if has_left(self.connection):
                raise Lost
        return answer(self.server.workspace, self.server.tokens, self.command, path, query, self.headers, body)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.data)))
        self.end_headers()
        self.wfile.write(answer.data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Calls are kept instead."""


def answer(
    workspace: Workspace, tokens: Sequence[str], method: str, path: str, query: Mapping[str, str],
    headers: Mapping[str, str], body: bytes,
) -> Answer:  # fmt: skip
    """Of whichever service `path` is of. Raises Refused and Lost."""
    told = {name.lower(): value for name, value in headers.items()}
    if path == TOKEN_PATH:
        return _token(tokens, query, told)
    if workspace.faults.outage == "refuse":
        raise Refused(503, "ServiceUnavailable", "Try again later.")
    if workspace.faults.outage:
        raise Lost
    token = told.get("authorization", "").removeprefix("Bearer ")
    if path.startswith(f"/{CONTAINER}"):
        if token not in tokens and query.get("sig") != "good":
            return Answer(status=403, data=b"<Error><Code>AuthenticationFailed</Code></Error>")
        name = path.removeprefix(f"/{CONTAINER}").lstrip("/")
        return workspace.blobs.handle(method, name, query, told, body)
    if token not in tokens:
        raise Refused(401, "InvalidAuthenticationToken", "The access token is invalid.")
    if not path.startswith(workspace.resource):
        raise Refused(404, "ResourceNotFound", "The workspace was not found.")
    rest = path.removeprefix(workspace.resource).strip("/")
    return workspace.handle(method, rest, query, json.loads(body) if body else None)


def _token(tokens: Sequence[str], query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
    if not headers.get("x-identity-header") or not tokens:
        return Answer.of({"error": "invalid_request", "error_description": "Identity not found"}, 400)
    until = int(time.time()) + 3600
    told = {"access_token": tokens[0], "expires_on": str(until), "resource": query.get("resource")}
    return Answer.of({**told, "token_type": "Bearer"})


def has_left(connection: socket.socket) -> bool:
    """Whether the client waits for no answer any more."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


@contextmanager
def serving(workspace: Workspace, tokens: list[str], port: int = 0) -> Iterator[Server]:
    """Jobs run on when it ends."""
    server = Server(workspace, tokens, port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="aml-fake", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
