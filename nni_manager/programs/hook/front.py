"""The port that NNI's launcher asks for, until the experiment is there and the daemon opens it.

The launcher asks for the status until it gets one, and then posts the config. The port is closed before that is acted
on, so that the daemon can have it, and the launcher gets its answer on the connection that it has.
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
#: Seconds that one connection may take to send its request.
_PATIENCE_S = 10.0
#: Most bytes of a config.
_MOST_BYTES = 64 * 1024 * 1024


class Front(HTTPServer):
    """Raises AlreadyOwned when the port is in use."""

    def __init__(self, port: int, url_prefix: str) -> None:
        self.root = f"/{url_prefix}/api/v1/nni" if url_prefix else "/api/v1/nni"
        #: None: no config has been acted on. Then: whether that went well.
        self.outcome: bool | None = None
        self._act: Act | None = None
        try:
            super().__init__((_HOST, port), _Handler)
        except OSError as error:
            raise AlreadyOwned(f"port {port} cannot be opened ({error.strerror}); choose another") from None

    def serve(self, act: Act) -> bool:
        """Answers until a config was posted and acted on; returns whether that went well."""
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
            self._answer(503, {"error": "the experiment has not begun yet; ask again in a moment"})

    def do_POST(self) -> None:
        if self._path() != f"{self.server.root}/experiment":
            return self._answer(404, {"error": f"there is no {self._path()}"})
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
            raise ValueError("its length must be given, and be below 64 MiB")
        return int(text)

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
