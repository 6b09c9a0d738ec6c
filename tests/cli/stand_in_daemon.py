"""A daemon's control socket over real HTTP with scripted answers."""

from __future__ import annotations

import json
import os
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from nni_manager.client.data_directory import LOCK
from nni_manager.store.folder import Ownership


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False


class StandInDaemon:
    """``…/events`` sends `states` one after the other, then waits for `release`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.states: list[dict[str, Any]] = []
        self.release = threading.Event()
        self.streaming = threading.Event()
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[Any] = []

    @contextmanager
    def running(self) -> Iterator[StandInDaemon]:
        path, lock = self.directory / "control.sock", Ownership(self.directory / LOCK, "the stand-in's folder")
        with _Server(str(path), self._handler()) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            pointer = {"socket": str(path), "pid": 1, "version": "0"}
            (self.directory / "control.json").write_text(json.dumps(pointer))
            try:
                yield self
            finally:
                self.release.set()
                server.shutdown()
                thread.join()
                lock.release()

    def answer(self, method: str, path: str) -> tuple[int, object]:
        self.requests.append((method, path))
        if path == "/api/v1/experiments":
            return (201, {"id": "k3v9x0qa"}) if method == "POST" else (200, {"experiments": self.states[:1]})
        if path.startswith("/api/v1/experiments/k3v9x0qa"):
            return 200, self.states[-1]
        if path == "/api/v1/daemon":
            return 200, {"pid": os.getpid(), "endsByItself": False}
        return 404, {"error": f"there is nothing at {path}"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        daemon = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith("/events"):
                    self._stream()
                else:
                    self._send(*daemon.answer("GET", self.path))

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                daemon.bodies.append(json.loads(self.rfile.read(length) or "null"))
                self._send(*daemon.answer("POST", self.path))

            def address_string(self) -> str:
                return "unix"  # the base class takes it from a pair

            def log_message(self, *_: object) -> None:
                pass

            def _send(self, status: int, answer: object) -> None:
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _stream(self) -> None:
                self.send_response(200)
                self.end_headers()
                for state in daemon.states:
                    self.wfile.write(f"event: state\ndata: {json.dumps(state)}\n\n".encode())
                self.wfile.flush()
                daemon.streaming.set()
                daemon.release.wait(30)

        return Handler
