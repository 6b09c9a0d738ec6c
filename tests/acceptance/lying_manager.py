"""A malicious manager: it forwards requests to an honest one, and inserts hostile values into the answers."""

from __future__ import annotations

import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OUTSIDE = "../../outside"
ESCAPES = "\x1b]0;taken\x07\x1b[31m\x9b2J\u202eevil\u2028<script>alert(1)</script>"


def references() -> list[str]:
    """References to a file and a variable of the client's machine."""
    return [f"file:{os.environ['HOME']}/private", "${PRIVATE}"]


#: (name of the field, value) → the value that is sent.
Lie = Callable[[str, Any], Any]


def _strings(text: str, kept: tuple[str, ...] = ()) -> Lie:
    """Replace every text except those of `kept` fields."""
    return lambda name, value: text if isinstance(value, str) and name not in kept else value


def _of_type(other: Any) -> Lie:
    return lambda name, value: other if name not in ("", "version", "dataDirectory") else value


#: Texts that commands use to distinguish states, and names that they use in further requests.
_KEPT = ("version", "status", "id", "trialId", "dataDirectory", "kind", "optimizeMode", "parameterSource", "type")
LIES: dict[str, Lie] = {
    "paths": _strings(OUTSIDE, ("version", "dataDirectory")),
    "absolute paths": _strings("/etc/passwd", ("version", "dataDirectory")),
    "paths of files": lambda name, value: OUTSIDE if name == "name" and isinstance(value, str) else value,
    "empty names": lambda name, value: "" if name == "name" and isinstance(value, str) else value,
    "escapes": _strings(ESCAPES, _KEPT),
    "secrets": lambda name, value: references() if name == "references" else value,
    "nulls": _of_type(None),
    "lists": _of_type([[]]),
    "texts": _of_type(ESCAPES),
    "numbers": _of_type(10**400),
    "numbers for ids": lambda name, value: 5 if name in ("id", "trialId") else value,
    "negative numbers": lambda name, value: -(10**18) if type(value) is int else value,
    "statuses": lambda name, value: "ODD" if name in ("status", "endedAs", "optimizeMode", "state") else value,
    "no fields": lambda name, value: {} if isinstance(value, dict) and name not in ("", "config") else value,
}
#: Whole bodies.
BODIES: dict[str, bytes] = {
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "huge": b'{"a": "' + b"a" * 9_000_000 + b'"}',
    "list": b"[]",
    "null": b"null",
    "half": b'{"id": "',
    "html": b"<html><script>alert(1)</script>",
    "binary": bytes(range(256)),
}


#: Status, body and headers.
_Answer = tuple[int, bytes, dict[str, str]]


class LyingManager:
    """`lie`: a name in `LIES` or `BODIES`; empty: honest."""

    def __init__(self, honest: str) -> None:
        self._honest = honest
        self.lie = ""
        #: Bodies of received requests.
        self.told: list[bytes] = []
        self.url = ""
        self._answers: dict[str, _Answer] = {}

    def answer(self, method: str, path: str) -> _Answer:
        is_greeting = path == "/api/v1/daemon"  # else a client asks for nothing more
        if self.lie in BODIES and not is_greeting:
            return 200, BODIES[self.lie], {"X-Offset": "0", "X-Size": "1"}
        status, body, headers = self._honest_answer(method, path)
        if self.lie not in LIES or is_greeting:
            return status, body, headers
        try:
            answer = json.loads(body)
        except ValueError:
            return status, body, dict.fromkeys(headers, OUTSIDE)
        return status, json.dumps(_told(LIES[self.lie], "", answer)).encode(), headers

    def _honest_answer(self, method: str, path: str) -> _Answer:
        if method != "GET":
            return 200, self._canned(path), {}
        if path not in self._answers:
            try:
                with urllib.request.urlopen(self._honest + path, timeout=20) as answer:
                    kept = {name: value for name, value in answer.headers.items() if name.lower().startswith("x-")}
                    self._answers[path] = 200, answer.read(), kept
            except urllib.error.HTTPError as error:  # such as code that it lacks
                self._answers[path] = error.code, error.read(), {}
        return self._answers[path]

    def _canned(self, path: str) -> bytes:
        """Answers to requests that change something; these are not forwarded."""
        parts = path.split("/")
        last = parts[-1].partition("?")[0]
        if last == "plan":
            return json.dumps({"services": [_PLAN]}).encode()
        if last in ("clean", "left"):
            left = [{"service": "s", "trouble": "", "objects": [_LEFT]}]
            return json.dumps({"cleaned": [_CLEANED], "services": left}).encode()
        if last == "trials":
            return json.dumps({"id": "abcde", "sequenceId": 3}).encode()
        if parts[-2:] == ["experiments", "stop"]:
            return json.dumps({"stopped": [self.experiment]}).encode()
        if last == "experiments":
            return json.dumps({"id": self.experiment, "warnings": []}).encode()
        if last == "tensorboards":
            board = {"id": "b", "url": "http://127.0.0.1:1/", "port": 1, "trials": [], "folders": [], "pid": 1}
            return json.dumps(board).encode()
        return self._honest_answer("GET", f"/api/v1/experiments/{self.experiment}")[1]

    experiment = ""


_PLAN = {"service": "local", "trials": 2, "places": ["here"], "trouble": "", "whyNot": {"abcde": "no room"}}
_LEFT = {
    "experiment": "exp1",
    "manager": "other",
    "what": "Job nni-exp1",
    "createdMs": 1,
    "stays": "",
    "reason": "",
}
_CLEANED = {"experiment": "exp1", "platform": "local", "service": "local", "jobs": 1, "trouble": ""}


def _told(lie: Lie, name: str, value: Any) -> Any:
    if (changed := lie(name, value)) is not value:
        return changed
    if isinstance(value, dict):
        return {key: _told(lie, key, one) for key, one in value.items()}
    if isinstance(value, list):
        return [_told(lie, name, one) for one in value]
    return value


@contextmanager
def lying_manager(honest: str, experiment: str) -> Iterator[LyingManager]:
    manager = LyingManager(honest)
    manager.experiment = experiment

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            manager.told.append(self.rfile.read(length))
            if "/events" in self.path:
                status, body, _ = manager.answer("GET", self.path.partition("/events")[0])
                body = b"data: " + body.replace(b"\n", b" ") + b"\n\n"
                headers = {}
            else:
                status, body, headers = manager.answer(self.command, self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:  # a client may hang up
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        manager.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield manager
        finally:
            server.shutdown()
            thread.join()
