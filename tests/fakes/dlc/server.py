"""The service on a port, with network faults."""

from __future__ import annotations

import dataclasses
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.fakes.dlc.answers import Answer
from tests.fakes.dlc.service import DlcService, Lost

_LOOK_S = 0.05
_PAGE = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, service: DlcService, host: str = "127.0.0.1", port: int = 0, tls: tuple[Path, Path] | None = None
    ) -> None:
        super().__init__((host, port), _Handler)
        self.service = service
        if tls is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*tls)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def service_actions(self) -> None:
        self.service.advance()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that hangs up is not an error
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path.startswith("/fake/"):
            return self._do_fake(path, body)
        if self.server.service.faults.outage == "hang" and not self._outlasts_it():
            self.close_connection = True
            return None
        outage = self.server.service.faults.outage
        if outage:
            return self._be_out(outage)
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            self._send(self.server.service.handle(self.command, path, query, headers, body))
        except Lost:
            self.close_connection = True

    do_POST = do_DELETE = do_PUT = do_GET

    def _outlasts_it(self) -> bool:
        """Wait for the end of the outage; False: the client has hung up."""
        while self.server.service.faults.outage == "hang" and not has_left(self.connection):
            time.sleep(_LOOK_S)
        return not has_left(self.connection)

    def _be_out(self, outage: str) -> None:
        if outage == "hang up":
            self.close_connection = True
        elif outage == "html":
            self._send_bytes(502, _PAGE.encode(), {"Content-Type": "text/html"})
        else:
            self._send(Answer(status=503, body={"Code": "ServiceUnavailable", "Message": "Try again later."}))

    def _do_fake(self, path: str, body: bytes) -> None:
        """The control routes below ``/fake``."""
        service = self.server.service
        if path == "/fake/faults" and self.command == "POST":
            for name, value in json.loads(body).items():
                setattr(service.faults, name, value)
        elif path == "/fake/keys" and self.command == "POST":
            service.signatures.keys = json.loads(body)
        elif path == "/fake/vanish" and self.command == "POST":
            service.vanish(json.loads(body)["JobId"])
        elif path == "/fake/release" and self.command == "POST":
            service.release(json.loads(body)["JobId"])
        elif path == "/fake/stop" and self.command == "POST":
            service.stop(json.loads(body)["JobId"])
        elif path == "/fake/preempt" and self.command == "POST":
            service.preempt(json.loads(body)["JobId"])
        jobs = [dataclasses.asdict(job) for job in service.jobs.by_id.values()]
        self._send(Answer(status=200, body={"jobs": jobs, "calls": service.calls}))

    def _send(self, answer: Answer) -> None:
        data = json.dumps(answer.body).encode()
        self._send_bytes(answer.status, data, {"Content-Type": "application/json", **answer.headers})

    def _send_bytes(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing; calls are recorded."""


def has_left(connection: socket.socket) -> bool:
    """Whether the client has closed the connection."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


@contextmanager
def serving(service: DlcService, port: int = 0, tls: tuple[Path, Path] | None = None) -> Iterator[int]:
    """Serve and yield the port; jobs continue after it ends. `tls`: files of a certificate and its key."""
    server = Server(service, port=port, tls=tls)
    thread = threading.Thread(target=server.serve_forever, args=(_LOOK_S,), name="dlc-fake", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
