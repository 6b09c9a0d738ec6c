"""``python hive_server FOLDER PORT CONTROL_PORT``: serves accounts on one port, and the test's control on another."""

from __future__ import annotations

import json
import re
import secrets
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from hive_server.jobs import Jobs

TOKEN = "honey-pot-0042"
_NAME = r"([A-Za-z0-9._-]+)"


class Hive:
    def __init__(self, folder: Path, port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.jobs = Jobs(folder, slots=120)
        self.port = port
        self.sessions: set[str] = set()
        self.hangs = threading.Event()
        self.loses_answer = False
        self._log = (folder / "requests.log").open("a", buffering=1)
        self._server: ThreadingHTTPServer | None = None
        self.open()

    def reset(self) -> None:
        """As it was when it began, but for its port."""
        self.open()
        self.hangs.clear()
        self.sessions.clear()
        self.loses_answer = False
        self.jobs.reset()
        self._log.truncate(0)

    def note(self, what: str) -> None:
        self._log.write(f"{time.monotonic():.4f} {what}\n")

    def open(self) -> None:
        if self._server is None:
            self._server = _Server(("127.0.0.1", self.port), _handler(self, Api))
            self.port = self._server.server_address[1]
            threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Open connections are cut as soon as something comes through them."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    @property
    def is_open(self) -> bool:
        return self._server is not None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A closed connection is not an error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hive: Hive

    def do(self) -> None:
        self.body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.handle_call()

    do_GET = do_PUT = do_POST = do_DELETE = do

    def handle_call(self) -> None:
        raise NotImplementedError

    def answer(self, status: int, content: object) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Hive-Free", str(self.hive.jobs.free()))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """The server has a log of its own."""


class Api(_Handler):
    """What accounts call."""

    def handle_call(self) -> None:
        hive, path = self.hive, self.path.partition("?")[0]
        if not hive.is_open:
            self.close_connection = True
            return
        is_login = (self.command, path) == ("POST", "/v1/sessions")
        hive.note("login" if is_login else f"{self.command} {path}")
        while hive.hangs.is_set():
            time.sleep(0.02)
        secret = (self.headers["Authorization"] or "").removeprefix("Bearer ")
        if secret != TOKEN and (secret not in hive.sessions or is_login):
            return self.answer(401, {"error": "who are you?"})
        if is_login:
            hive.sessions.add(session := secrets.token_hex(8))
            return self.answer(200, {"session": session})
        status, content = self._do(path)
        if self.command == "PUT" and status == 201 and hive.loses_answer:
            hive.loses_answer, self.close_connection = False, True
            return
        self.answer(status, content)

    def _do(self, path: str) -> tuple[int, object]:
        jobs = self.hive.jobs
        if (self.command, path) in (("GET", "/v1/account"), ("GET", "/v1/room")):
            return 200, {}
        if (found := re.fullmatch(f"/v1/jobs/{_NAME}", path)) and self.command == "PUT":
            return jobs.put(found[1], _submission(self.body))
        if found := re.fullmatch(f"/v1/groups/{_NAME}(/.*)?", path):
            return self._do_group(found[1], found[2] or "")
        return 404, {"error": f"cannot find {self.command} {path}"}

    def _do_group(self, group: str, rest: str) -> tuple[int, object]:
        jobs = self.hive.jobs
        if (self.command, rest) == ("GET", "/jobs"):
            return 200, {"jobs": jobs.of(group)}
        if self.command == "POST" and rest in ("/stop", "/forget"):
            order = json.loads(self.body)
            for name in set(order["names"]) & jobs.of(group).keys():
                jobs.stop(name, float(order["grace_s"]), "its owner") if rest == "/stop" else jobs.remove(name)
            return 200, {}
        if self.command == "PUT" and (found := re.fullmatch(f"/files/{_NAME}", rest)):
            jobs.put_file(group, found[1], self.body)
            return 200, {}
        if self.command == "DELETE" and rest in ("", "/files"):
            for name in jobs.of(group) if not rest else ():
                jobs.remove(name)
            jobs.remove_files(group)
            return 200, {}
        if self.command == "GET" and (found := re.fullmatch(f"/jobs/{_NAME}/{_NAME}", rest)):
            return self._log_of(found[1], found[2])
        return 404, {"error": "there is nothing of that name"}

    def _log_of(self, job: str, file: str) -> tuple[int, object]:
        data = self.hive.jobs.log(job, file)
        if data is None:
            return 404, {"error": "no such file"}
        start, limit = (int(re.findall(rf"{key}=(-?\d+)", self.path)[0]) for key in ("offset", "limit"))
        start = max(0, len(data) + start) if start < 0 else start
        return 200, data[start : start + limit]


class Control(_Handler):
    """The calls of a test's control: one verb a path, its arguments in the body."""

    def handle_call(self) -> None:
        hive, order = self.hive, json.loads(self.body or b"{}")
        match self.path:
            case "/away":
                hive.open() if not order["is"] else hive.close()
            case "/hangs":
                hive.hangs.set() if order["is"] else hive.hangs.clear()
            case "/full":
                hive.jobs.is_full = order["is"]
            case "/held":
                hive.jobs.held = order["why"]
            case "/lose":
                hive.loses_answer = True
            case "/start":
                if "pid" not in (hive.jobs._read(order["name"]) or {}):
                    hive.jobs.start(order["name"])
            case "/stop":
                hive.jobs.stop(order["name"], 1.0, "a person")
            case "/remove":
                hive.jobs.remove(order["name"])
            case "/put":
                hive.jobs.put_file(order["entry"]["group"], "job.sh", b"sleep 1000\n")
                hive.jobs.put(order["name"], order["entry"])
                hive.jobs.start(order["name"])
            case "/reset":
                hive.reset()
            case "/traces":
                return self.answer(200, hive.jobs.traces(order["group"]))
            case "/jobs":
                return self.answer(200, hive.jobs.of(""))
        self.answer(200, {"port": hive.port})


def _submission(body: bytes) -> dict[str, Any]:
    """Raises KeyError for one that lacks something."""
    told = json.loads(body)
    return {key: told[key] for key in ("group", "tag", "command", "grace_s", "environment")}


def _handler(hive: Hive, kind: type[_Handler]) -> type[_Handler]:
    return type(kind.__name__, (kind,), {"hive": hive})


def main(folder: str, port: str, control_port: str) -> None:
    hive = Hive(Path(folder), int(port))
    control = _Server(("127.0.0.1", int(control_port)), _handler(hive, Control))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(json.dumps({"port": hive.port, "control": control.server_address[1]}), flush=True)
    try:
        control.serve_forever(0.05)
    finally:
        hive.jobs.reset()


if __name__ == "__main__":
    main(*sys.argv[1:])
