"""A trial listener that stores runners' posts, for tests of the way there: it misbehaves on demand.

It identifies itself like the manager, see `trial_runner.protocol`.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trial_runner import protocol

#: Seconds for every awaited post.
TIMEOUT_S = 30.0
MANAGER = "the-manager"
TOKEN = f"{MANAGER}.the-token-of-this-attempt"
ATTEMPT = "exp1/abcde/1"
PATH = f"/trial/v1/{ATTEMPT}"

Body = dict[str, Any]


@dataclass
class Answer:
    """An answer to send; `status` 0 hangs up instead."""

    status: int = 200
    body: Body | bytes = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    #: It has the header that identifies the manager.
    is_signed: bool = True


#: Called before a request is handled: returns an answer instead of handling it, or None.
Misbehaviour = Callable[[str, Body], Answer | None]


class FakeListener:
    """A trial listener that stores lines which continue the stored ones, and answers others with the stored offset."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        """`address`: this machine's address for runners."""
        self._address = address
        self.news = threading.Condition()
        self.parameters: Body = {"parameter_id": 3, "parameter_source": "algorithm", "parameters": {"lr": 0.1}}
        self.code: bytes | None = None
        self.lines: dict[str, list[str]] = {}
        self.sizes: dict[str, int] = {}
        self.logs: dict[str, bytearray] = {}
        self.statuses: list[Body] = []
        self.versions: list[Body] = []
        self.posts: list[tuple[str, Body]] = []
        #: The container id of each request.
        self.containers: list[str | None] = []
        self.stop: float | None = None
        #: Seconds between two heartbeats of a runner.
        self.heartbeat_s = 0.05
        #: False: hangs up after every answer, so that no connection stays open.
        self.keeps_alive = True
        self.connections = 0
        #: False: like an earlier manager, it accepts one post per request, and answers without extra fields.
        self.takes_together = True
        #: Code in the answer to the registration.
        self.inline_code = ""
        #: Requests; each may contain several posts.
        self.requests = 0
        #: The report of the end closes the attempt, as in the manager: only logs are accepted after it.
        self.decides = False
        self.before: Misbehaviour = lambda route, body: None
        #: Called after a request was handled: whether to hang up instead of answering.
        self.is_dropped: Callable[[str], bool] = lambda route: False
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.open()

    @property
    def url(self) -> str:
        return f"http://{self._address}:{self.port}{PATH}"

    def variables(self, port: int | None = None) -> Mapping[str, str]:
        """Variables of a runner of the attempt; `port`: of a proxy in front of the listener."""
        url = f"http://{self._address}:{self.port if port is None else port}{PATH}"
        return {protocol.ENV_MANAGER_URL: url, protocol.ENV_TOKEN: TOKEN}

    def open(self) -> None:
        listener = self

        class Handler(_Handler):
            owner = listener

        self._server = _Server((self._address, self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        """Closes the listener: it refuses connections, and hangs up on requests on open ones."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    @property
    def is_open(self) -> bool:
        return self._server is not None

    def wait_for(self, condition: Callable[[], object]) -> None:
        with self.news:
            assert self.news.wait_for(condition, TIMEOUT_S), f"posted so far: {[route for route, _ in self.posts]}"

    def wait_for_post(self, route: str, count: int = 1) -> None:
        self.wait_for(lambda: sum(name == route for name, _ in self.posts) >= count)

    def values(self, outbox: str = protocol.MAIN_OUTBOX) -> list[Any]:
        return [json.loads(line)["value"] for line in self.lines.get(outbox, ())]

    @property
    def exited(self) -> Body:
        """The only posted report of the end."""
        (status,) = [status for status in self.statuses if status["event"] == "exited"]
        return status

    def handle(self, route: str, body: Body) -> Answer:
        """The answer to a request."""
        self.requests += 1
        if route != protocol.TOGETHER or not self.takes_together:
            return self._handle_one(route, body)
        answers: list[Body] = []
        for part in body["posts"]:
            answer = self._handle_one(part["route"], part["body"])
            if answer.status == 0 or not answer.is_signed or isinstance(answer.body, bytes):
                return answer
            wait = {"retryAfterS": float(answer.headers["Retry-After"])} if "Retry-After" in answer.headers else {}
            answers.append({"status": answer.status, "body": answer.body, **wait})
            if answer.status != 200 or answer.body.get("offset", 0) < part["body"].get("end", 0):
                break
        return Answer(body={"answers": answers})

    def _handle_one(self, route: str, body: Body) -> Answer:
        with self.news:
            self.posts.append((route, body))
            self.news.notify_all()
        answer = self.before(route, body)
        if answer is None:
            with self.news:
                answer = self._answer(route, body)
                self.news.notify_all()
            if self.is_dropped(route):
                return Answer(0)
        return answer

    @property
    def has_heard_the_end(self) -> bool:
        return any(status["event"] == "exited" for status in self.statuses)

    def _answer(self, route: str, body: Body) -> Answer:
        if self.decides and self.has_heard_the_end and route != "log":
            return Answer(410, {"error": "the attempt is decided"})
        match route:
            case "version":
                self.versions.append(body)
                return Answer(body={"accepted": True, "managerVersion": protocol.VERSION, **self._told()})
            case "parameters":
                return Answer(body=self.parameters)
            case "code":
                return Answer(204) if self.code is None else Answer(body=self.code)
            case "outboxes":
                return Answer(body=dict(self.sizes))
            case "status":
                self.statuses.append(body)
                return Answer(body={**({"everyS": self.heartbeat_s} if self.takes_together else {}), **self._stop()})
            case "heartbeat":
                return Answer(body={"everyS": self.heartbeat_s, **self._stop()})
            case "metrics":
                return Answer(body={"offset": self._store_lines(body)})
            case "log":
                return Answer(body={"offset": self._store_log(body)})
        return Answer(404, {"error": f"cannot find route {route}"})

    def _told(self) -> Body:
        """The extra fields of the answer to the registration."""
        if not self.takes_together:
            return {}
        inline = {protocol.INLINE_CODE: self.inline_code} if self.inline_code else {}
        return {
            "record": self.parameters,
            "hasCode": self.code is not None,
            "stored": dict(self.sizes),
            protocol.TOGETHER: True,
            "stop": self.stop is not None,
            **inline,
        }

    def _stop(self) -> Body:
        return {"stop": self.stop is not None, "graceS": self.stop or 0.0}

    def _store_lines(self, body: Body) -> int:
        outbox, stored = body["outbox"], self.sizes.get(body["outbox"], 0)
        if body["start"] == stored:
            self.lines.setdefault(outbox, []).extend(body["lines"])
            self.sizes[outbox] = stored = body["end"]
        return int(stored)

    def _store_log(self, body: Body) -> int:
        name = body.get("source", "") + body["file"]
        stored = self.logs.setdefault(name, bytearray())
        if body["offset"] == len(stored):
            stored += body["data"].encode()
        return len(stored)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a runner that hung up is not an error
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FakeListener

    def setup(self) -> None:
        super().setup()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.owner.connections += 1

    def do_GET(self) -> None:
        self._do({})

    def do_POST(self) -> None:
        self._do(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _do(self, body: Body) -> None:
        if not self.owner.is_open:
            self.close_connection = True
            return
        self.close_connection = self.close_connection or not self.owner.keeps_alive
        folder, _, route = self.path.rpartition("/")
        self.owner.containers.append(self.headers[protocol.CONTAINER_HEADER])
        if self.headers["Authorization"] != f"Bearer {TOKEN}" or folder != PATH:
            answer = Answer(401, {"error": "no such token"})
        else:
            answer = self.owner.handle(route, body)
        if answer.status == 0:
            self.close_connection = True
        else:
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        if answer.is_signed:
            self.send_header(protocol.ANSWER_HEADER, f"{MANAGER}/{ATTEMPT}/{self.headers[protocol.REQUEST_HEADER]}")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if answer.status != 204:
            self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Does nothing: posts are stored instead."""


@contextmanager
def fake_listener() -> Iterator[FakeListener]:
    listener = FakeListener()
    try:
        yield listener
    finally:
        listener.close()
