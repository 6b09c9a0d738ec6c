"""Serves the port of NNI's launcher until the experiment exists and the daemon opens it.

The launcher polls the status, and then posts the config. The port is closed before the config is handled, so that the
daemon can open it. The launcher gets its answer on its existing connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from nni_manager.domain.errors import AlreadyOwned, NniManagerError

#: Acts on a posted config; returns the answer. Raises NniManagerError.
Act = Callable[[Any], dict[str, Any]]

_HOST = "127.0.0.1"
#: Time limit for a connection to send its request, in seconds.
_PATIENCE_S = 10.0
#: Maximum size of a config, in bytes.
_MOST_BYTES = 64 * 1024 * 1024


class Front(HTTPServer):
    """The temporary server. Raises AlreadyOwned if the port is in use."""

    def __init__(self, port: int, url_prefix: str) -> None:
        self.root = f"/{url_prefix}/api/v1/nni" if url_prefix else "/api/v1/nni"
        #: Whether handling the config succeeded; None: no config yet.
        self.outcome: bool | None = None
        self._act: Act | None = None
        try:
            super().__init__((_HOST, port), _Handler)
        except OSError as error:
            raise AlreadyOwned(f"port {port} cannot be opened ({error.strerror}); choose another") from None

    def serve(self, act: Act) -> bool:
        """Answer until a config was posted and handled; return whether that succeeded."""
        self._act = act
        try:
            while self.outcome is None:
                self.handle_request()
        finally:
            self.server_close()
        return self.outcome

    def act(self, config: Any) -> tuple[int, dict[str, Any]]:
        """(HTTP status, answer)."""
        assert self._act is not None
        self.server_close()
        try:
            answer = self._act(config)
        except NniManagerError as error:
            self.outcome = False
            return 400, {"error": str(error)}
        self.outcome = True
        return 200, answer


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE_S
    server: Front

    def do_GET(self) -> None:
        if self._path() == f"{self.server.root}/check-status":
            self._answer(200, {"status": "INITIALIZED", "errors": []})
        else:
            self._answer(503, {"error": "the experiment has not started yet; try again in a moment"})

    def do_POST(self) -> None:
        if self._path() != f"{self.server.root}/experiment":
            return self._answer(404, {"error": f"cannot find {self._path()}"})
        try:
            config = json.loads(self.rfile.read(self._size()))
        except ValueError as error:
            return self._answer(400, {"error": f"the body is not a config in JSON: {error}"})
        self._answer(*self.server.act(config))

    def _path(self) -> str:
        return self.path.partition("?")[0].rstrip("/")

    def _size(self) -> int:
        text = self.headers.get("Content-Length", "")
        if not text.isdecimal() or int(text) > _MOST_BYTES:
            raise ValueError("its length is required, and must be below 64 MiB")
        return int(text)

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The server logs no request."""
