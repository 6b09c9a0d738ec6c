"""Rules of every listener and route of a real daemon: admission, refusals, secrets."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from nni_manager.api.runners.trial_listener import TrialListener
from nni_manager.client.address import POINTER_FILE
from nni_manager.web.pages import PagesContext, create_pages
from tests.acceptance import runner_flood
from tests.fuzz.malformed import CONVERSATIONS, converse, report_one
from tests.fuzz.report import Report
from tests.live_daemon import Daemon, end_all, processes_of

pytestmark = [pytest.mark.acceptance, pytest.mark.true_start, pytest.mark.timeout(120)]

TOKEN = "open-sesame-4711-kL9"
TRIAL = """echo '{"type": "final", "value": 7}' >> "$NNI_OUTBOX"; echo said; echo complained >&2; exec sleep 1000"""
#: NNI's methods and paths below an experiment's root.
NNI = [
    "GET version",
    "GET check-status",
    "GET experiment",
    "POST experiment",
    "PUT experiment",
    "DELETE experiment",
    "POST experiment/import-data",
    "GET experiment/imported-data",
    "PUT experiment/cluster-metadata",
    "GET experiment-metadata",
    "GET experiments-info",
    "GET job-statistics",
    "GET trial-jobs",
    "POST trial-jobs",
    "GET trial-jobs/{trial}",
    "DELETE trial-jobs/{trial}",
    "GET metric-data",
    "GET metric-data/{trial}",
    "GET metric-data-range/0/1",
    "GET metric-data-latest",
    "GET trial-file/{trial}/stdout",
    "GET export-data",
    "POST tensorboard",
    "GET tensorboard/{trial}",
    "PUT tensorboard/{trial}",
    "DELETE tensorboard/{trial}",
    "GET tensorboard-tasks",
    "DELETE tensorboard-tasks",
]
PROBES = ("/healthz", "/readyz")


@dataclass
class Listeners:
    """A daemon with all listeners, a local experiment, and one in which the test replaces the container."""

    daemon: Daemon
    id: str
    trial: str
    #: Addresses.
    service: str
    endpoint: str
    listener: str
    #: Environment of the second experiment's runner.
    runner: dict[str, str] = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        token = self.daemon.environment["NNI_MANAGER_TOKEN"]
        return {"Authorization": f"Bearer {token}"} if token else {}

    def routes(self) -> list[tuple[str, str, str]]:
        """(listener, method, path) of all routes of service and endpoint."""
        with self.daemon.client() as client:
            document = client.get("/api/v1/openapi.json").json()
        own = [
            (method.upper(), self._filled(path)) for path, methods in document["paths"].items() for method in methods
        ]
        own += [("GET", "/api/v1/openapi.json"), ("GET", "/openapi.json"), ("GET", "/nothing"), ("GET", "/api")]
        pages = [(method, self._filled(path)) for method, path in _pages()]
        below = self.nni()
        on_service = own + pages + [(method, f"/experiments/{self.id}{path}") for method, path in below]
        here = [("GET", "/"), ("GET", "/static/style.css"), ("GET", "/nothing"), *below]
        mine = [(method, path) for method, path in own + pages if f"/{self.id}" in path]
        return [(self.service, *each) for each in on_service] + [(self.endpoint, *each) for each in here + mine]

    def nni(self) -> list[tuple[str, str]]:
        found = [tuple(each.split()) for each in NNI]
        logs = [("GET", "/logs/nnimanager.log"), ("GET", "/logs/dispatcher.log")]
        return [(method, f"/api/v1/nni/{self._filled(path)}") for method, path in found] + logs

    def listener_routes(self) -> list[tuple[str, str]]:
        """Routes of the trial listener, from its application."""
        base = urlsplit(self.runner["NNI_MANAGER_URL"]).path
        return [
            *[("GET", f"{base}/{name}") for name in ("parameters", "code", "outboxes")],
            *[("POST", f"{base}/{name}") for name in ("version", "status", "metrics", "log", "heartbeat", "together")],
        ]

    def _filled(self, path: str) -> str:
        names = {"{id}": self.id, "{trialId}": self.trial, "{trial_id}": self.trial, "{trial}": self.trial}
        names |= {
            "{name}": "stdout" if "/trials/" in path else "nnimanager.log",
            "{sha256}": "0f" * 32,
            "{question}": "trials",
            "{attempt}": "1",
            "{boardId}": "3fa01c",
            "{board}": "3fa01c",
            "{path:path}": "stdout",
        }
        for name, value in names.items():
            path = path.replace(name, value)
        assert "{" not in path, path
        return path


def _pages() -> list[tuple[str, str]]:
    """(method, path) of the pages, from their route table."""
    without_service = PagesContext(commands=cast(Any, None), version="", analysis=cast(Any, None))
    found = []
    for route in create_pages(without_service).routes:
        methods = getattr(route, "methods", None) or {"GET"}
        path = f"{route.path}/style.css" if route.path == "/static" else route.path  # type: ignore[attr-defined]
        found += [(method, path) for method in methods - {"HEAD"}]
    return found


@contextlib.contextmanager
def _opened(folder: Path, token: str) -> Iterator[Listeners]:
    data, code = folder / "data", folder / "code"
    for path in (data, code, folder / "home"):
        path.mkdir()
    with tempfile.TemporaryDirectory(prefix="nni-") as runtime:
        own = {"HOME": str(folder / "home"), "XDG_RUNTIME_DIR": runtime, "NNI_MANAGER_TOKEN": token}
        daemon = Daemon(data, environment=own)
        try:
            daemon.start("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1", "--log-level", "debug")
            yield _filled(daemon, code)
        finally:
            _end(daemon)


def _filled(daemon: Daemon, code: Path) -> Listeners:
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": TRIAL,
        "trialCodeDirectory": ".",
        "trialConcurrency": 1,
        "maxTrialNumber": 1,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "debug": True,
        "trainingService": {"platform": "local"},
        "experimentWorkingDirectory": str(daemon.data),
    }
    body = {"config": json.dumps(config), "directory": str(code), "environment": {"PATH": os.environ["PATH"]}}
    id_ = daemon.call("POST", "/experiments", json={**body, "interpreter": sys.executable, "endpoint": {"port": 0}})[
        "id"
    ]
    outside = {**config, "trainingService": {"platform": "scripted", "launch": "external", "nniManagerIp": "127.0.0.1"}}
    other = daemon.create(outside, code)
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 1 and state["best"] is None)
    started = _first(daemon.data / other / "scripted", "*/start.json").with_name("start.env")
    (trial,) = daemon.call("GET", f"/experiments/{id_}/trials")["trials"]
    listeners = {listener["kind"]: listener["address"] for listener in daemon.call("GET", "/daemon")["listeners"]}
    runner = runner_flood.environment(started)
    return Listeners(daemon, id_, trial["id"], listeners["service"], listeners["endpoint"], listeners["trials"], runner)


def _first(folder: Path, pattern: str) -> Path:
    """Wait until it exists."""
    deadline = time.monotonic() + 50
    while not (found := list(folder.glob(pattern))):
        assert time.monotonic() < deadline, f"no {pattern} in {folder}"
        time.sleep(0.02)
    return found[0]


def _end(daemon: Daemon) -> None:
    with contextlib.suppress(Exception):
        daemon.call("POST", "/experiments/stop")
        daemon.terminate()
    end_all(str(daemon.data))
    if daemon.process is not None:
        daemon.process.wait()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    """Listeners without a token."""
    with _opened(tmp_path_factory.mktemp("open"), "") as listeners:
        yield listeners


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    """Listeners with a token."""
    with _opened(tmp_path_factory.mktemp("closed"), TOKEN) as listeners:
        yield listeners


@pytest.fixture(params=["opened", "closed"])
def either(request: pytest.FixtureRequest) -> Listeners:
    return cast(Listeners, request.getfixturevalue(request.param))


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


#: One connection per listener, like a browser: connecting takes most of the time of a request.
_connections: dict[str, http.client.HTTPConnection] = {}


def ask(address: str, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
    """Send a path unchanged, which client libraries would normalize. Streams are read up to their first chunk."""
    connection = _connections.pop(address, None)
    if connection is not None:
        with contextlib.suppress(ConnectionError):  # it was closed in the meantime
            return _asked(connection, address, method, path, headers or {}, body)
        connection.close()
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), int(parts.port or 0), timeout=20)
    return _asked(connection, address, method, path, headers or {}, body)


def _asked(
    connection: http.client.HTTPConnection, address: str, method: str, path: str, headers: dict[str, str], body: bytes
) -> Answer:
    given = {"Host": urlsplit(address).netloc, **headers, **({"Content-Length": str(len(body))} if body else {})}
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in given.items():
        connection.putheader(name, value)
    connection.endheaders(body or None)
    response = connection.getresponse()
    streams = response.headers.get("content-type", "").startswith("text/event-stream")
    found = response.read1(1 << 16) if streams else response.read()
    if streams or response.will_close:
        response.close()
        connection.close()
    else:
        _connections[address] = connection
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, found)


@pytest.fixture(scope="module", autouse=True)
def connections_are_closed() -> Iterator[None]:
    yield
    for connection in _connections.values():
        connection.close()
    _connections.clear()


def assert_foreigners_get_nothing(answer: Answer, where: object) -> None:
    assert not [name for name in answer.headers if name.startswith("access-control-")], where
    assert "set-cookie" not in answer.headers, where
    assert b"Traceback" not in answer.body, where


# All routes exist, or the following tests would prove nothing


def test_every_listed_route_answers(closed: Listeners) -> None:
    routes = closed.routes()
    assert len(routes) > 80
    for listener, method, path in routes:
        if method != "GET" or path in ("/nothing", "/api"):
            continue
        answer = ask(listener, method, path, closed.headers)
        absent = any(word in path for word in ("/code/", "tensorboard")) or (
            listener == closed.endpoint and "/api/v1/exp" in path
        )
        assert answer.status in ((200, 400, 404) if absent else (200,)), (method, path, answer)
    assert ask(closed.endpoint, "GET", "/metrics", closed.headers).status == 404  # metrics belong to the daemon
    listener = TrialListener(cast(Any, None))
    assert {path.rpartition("/")[2] for _, path in closed.listener_routes()} == {*listener.gets, *listener.posts}


# The token


@pytest.mark.parametrize(
    "shown", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Cookie": f"token={TOKEN}"}]
)
def test_no_route_answers_without_the_token(closed: Listeners, shown: dict[str, str]) -> None:
    for listener, method, path in closed.routes():
        answer = ask(listener, method, path, shown)
        if path in PROBES:
            assert answer.status == 200, path
            continue
        assert answer.status == 401, (method, path, answer)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert_foreigners_get_nothing(answer, (method, path))


def test_trial_token_opens_only_its_own_routes(closed: Listeners) -> None:
    token = {"Authorization": f"Bearer {closed.runner['NNI_TRIAL_TOKEN']}"}
    for method, path in closed.listener_routes():
        for shown in ({}, {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": "Bearer wrong"}):
            answer = ask(closed.listener, method, path, shown, b"{}" if method == "POST" else b"")
            assert answer.status in (401, 403), (path, shown, answer)
            assert_foreigners_get_nothing(answer, path)
        elsewhere = re.sub(r"^/trial/v1/[^/]+/[^/]+", f"/trial/v1/{closed.id}/{closed.trial}", path)
        assert ask(closed.listener, method, elsewhere, token).status == 403
    assert ask(closed.listener, "GET", closed.listener_routes()[0][1], token).status == 200
    for listener, method, path in closed.routes():
        if path not in PROBES:
            assert ask(listener, method, path, token).status == 401, path
    for path in ("/", "/api/v1/experiments", "/metrics", "/healthz", f"/experiments/{closed.id}"):
        assert ask(closed.listener, "GET", path, token).status in (403, 404), path


# Host and Origin


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8080", "10.1.2.3", "[::2]:80", "127.0.0.1.nip.io"]
)
def test_foreign_name_is_refused(opened: Listeners, host: str) -> None:
    for listener, method, path in opened.routes():
        answer = ask(listener, method, path, {"Host": host})
        assert answer.status == (200 if path in PROBES else 403), (method, path, answer)
        assert_foreigners_get_nothing(answer, (method, path))


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1", "file://"]
)
def test_foreign_page_may_neither_read_nor_write(either: Listeners, origin: str) -> None:
    """Even with the right token."""
    for listener, method, path in either.routes():
        if path in PROBES:
            continue
        answer = ask(listener, method, path, {**either.headers, "Origin": origin})
        assert answer.status == 403, (method, path, answer)
        assert_foreigners_get_nothing(answer, (method, path))


def test_preflight_is_not_granted(either: Listeners) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "PUT"}
    for listener, _, path in either.routes():
        answer = ask(listener, "OPTIONS", path, {**either.headers, **asked})
        assert answer.status in (403, 405), (path, answer)
        assert_foreigners_get_nothing(answer, path)


def test_answers_carry_the_hardening_headers(opened: Listeners) -> None:
    for listener, method, path in opened.routes():
        if method != "GET" or path in PROBES:
            continue
        headers = ask(listener, method, path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["cross-origin-resource-policy"] == "same-origin", path
        assert headers["x-frame-options"] == "SAMEORIGIN", path


def test_control_socket_needs_no_token_and_belongs_to_its_owner(closed: Listeners) -> None:
    path = Path(json.loads((closed.daemon.data / POINTER_FILE).read_text())["socket"])
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with closed.daemon.client() as client:
        assert client.get("/metrics").status_code == 200


# Sizes


@pytest.mark.parametrize("announced", [8 * 2**20 + 1, 400 * 2**20, 10**30])
def test_body_above_the_limit_of_its_route_is_refused(either: Listeners, announced: int) -> None:
    """Refused before a byte of it is sent."""
    for listener, method, path in either.routes():
        if method not in ("POST", "PUT", "PATCH"):
            continue
        if "/api/v1/code/" in path and announced < 300 * 2**20:
            continue  # code has a higher limit
        head = f"{method} {path} HTTP/1.1\r\nHost: {urlsplit(listener).netloc}\r\nContent-Length: {announced}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in either.headers.items())
        answer = _first_line(listener, f"{head}\r\n".encode())
        assert answer.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 ")), (path, answer)
        assert announced > 2**64 or b" 413 " in answer, (path, answer)


def _first_line(listener: str, request: bytes) -> bytes:
    parts = urlsplit(listener)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), 20) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as lines:
            return lines.readline()


@pytest.mark.parametrize("size", [400_000, 2_000_000])
def test_huge_header_is_refused(either: Listeners, size: int) -> None:
    for listener in (either.service, either.endpoint, either.listener):
        for line in (
            b"X: " + b"a" * size,
            b"\r\n".join(b"X%d: y" % n for n in range(size // 8)),
            b"Cookie: " + b"a" * size,
        ):
            request = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n\r\n"
            try:
                answer = _first_line(listener, request)
            except ConnectionError:
                continue  # closed before everything was sent
            assert answer[9:12] in (b"", b"400", b"431"), answer
        assert ask(either.service, "GET", "/healthz").status == 200


def test_malformed_http_gets_no_details(either: Listeners) -> None:
    report = Report("malformed")
    for listener in (either.service, either.endpoint, either.listener):
        parts = urlsplit(listener)
        for data in CONVERSATIONS:
            report_one((str(parts.hostname), int(parts.port or 0)), data, report)
    assert report.problems == {}
    assert "Traceback" not in (either.daemon.data.parent / "daemon.log").read_text()


def test_request_is_answered_despite_trailing_bytes(opened: Listeners) -> None:
    """The connection is closed after garbage, and the daemon logs no error."""
    parts = urlsplit(opened.service)
    good = f"GET /healthz HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
    answer = converse((str(parts.hostname), int(parts.port or 0)), good + b"\xff\xfe garbage\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 ") and answer[9:12] in (b"200", b"400")
    assert b"Traceback" not in answer


# Paths

UP = [
    "../db/nni.sqlite",
    "..%2Fdb%2Fnni.sqlite",
    "%2e%2e/db/nni.sqlite",
    "%2e%2e%2fdb%2fnni.sqlite",
    "..%252fdb",
    "....//db/nni.sqlite",
    "..%5cdb%5cnni.sqlite",
    "%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "../../../../../../../../etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "%2Fetc%2Fpasswd",
    "nnimanager.log%00",
    "%00",
    "nnimanager.log/../../db/nni.sqlite",
    "..%c0%afdb",
    "%ff",
    "..;/db/nni.sqlite",
    "stdout%00.txt",
    "stdout/../stdout",
    "../../../runner-secret",
    "..%2F..%2F..%2Frunner-secret",
    ".",
    "..",
]


@pytest.mark.parametrize("path", UP)
def test_no_path_leaves_its_folder(opened: Listeners, path: str) -> None:
    id_, trial, secret = opened.id, opened.trial, (opened.daemon.data / "runner-secret").read_bytes()
    api, nni = f"/api/v1/experiments/{id_}", "/api/v1/nni"
    here = [
        f"{api}/logs/{path}",
        f"{api}/trials/{trial}/logs/{path}",
        f"{api}/trials/{path}/logs/stdout",
        f"/static/{path}",
    ]
    below = [f"/logs/{path}", f"{nni}/trial-file/{trial}/{path}", f"{nni}/trial-file/{path}/stdout", f"{nni}/{path}"]
    pages = [f"/experiments/{path}", f"/experiments/{id_}/{path}", f"/experiments/{id_}/trials/{path}/kill", f"/{path}"]
    asked = [(opened.service, each) for each in (*here, *pages, *[f"/experiments/{id_}{each}" for each in below])]
    for listener, each in asked + [(opened.endpoint, each) for each in (*here, *below, *pages)]:
        answer = ask(listener, "GET", each)
        assert answer.status < 500, (each, answer)
        assert b"SQLite format 3" not in answer.body and b"root:" not in answer.body, each
        assert secret not in answer.body and b'"parameter_source"' not in answer.body, each
        assert b"Traceback" not in answer.body, each


def test_link_in_a_trial_folder_is_not_followed(opened: Listeners) -> None:
    folder = opened.daemon.data / opened.id / "trials" / opened.trial
    (folder / "trial.log").symlink_to(opened.daemon.data / "runner-secret")
    try:
        for listener, path in (
            (opened.service, f"/api/v1/experiments/{opened.id}/trials/{opened.trial}/logs/trial.log"),
            (opened.endpoint, f"/api/v1/nni/trial-file/{opened.trial}/trial.log"),
        ):
            answer = ask(listener, "GET", path)
            assert (opened.daemon.data / "runner-secret").read_bytes() not in answer.body
            assert answer.status == 404, answer
    finally:
        (folder / "trial.log").unlink()


# Addresses


@pytest.mark.parametrize(
    ("host", "token", "words"),
    [("0.0.0.0", "", "NNI_MANAGER_TOKEN"), ("::", "", "NNI_MANAGER_TOKEN"), ("0.0.0.0", "x" * 15, "16 characters")],
)
def test_public_listener_needs_a_token(tmp_path: Path, host: str, token: str, words: str) -> None:
    """Without a token, or with one that is easy to guess, the daemon does not start."""
    environment = {**os.environ, "HOME": str(tmp_path), "NNI_MANAGER_TOKEN": token}
    command = [sys.executable, "-m", "nni_manager", "serve", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    done = subprocess.run(
        [*command, "--host", host], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert host in line and words in line
    assert not (tmp_path / "data").exists()


def test_public_endpoint_needs_a_token(tmp_path: Path) -> None:
    """A daemon without a service has endpoints, too."""
    with tempfile.TemporaryDirectory(prefix="nni-") as runtime:
        own = {
            "HOME": str(tmp_path),
            "XDG_RUNTIME_DIR": runtime,
            "NNI_MANAGER_TOKEN": "",
            "NNI_MANAGER_HOST": "0.0.0.0",
        }
        (tmp_path / "data").mkdir()
        daemon = Daemon(tmp_path / "data", environment=own)
        daemon.start("--auto")
        try:
            config = {
                "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
                "trialCommand": "true",
                "trialCodeDirectory": ".",
                "maxTrialNumber": 1,
                "trialConcurrency": 1,
                "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
                "trainingService": {"platform": "local"},
            }
            body = {
                "config": json.dumps(config),
                "directory": str(tmp_path),
                "environment": {},
                "endpoint": {"port": 0},
            }
            with daemon.client() as client:
                answer = client.post("/api/v1/experiments", json=body)
                assert answer.status_code == 400 and "NNI_MANAGER_TOKEN" in answer.json()["error"], answer.text
                assert client.get("/api/v1/experiments").json()["experiments"] == []
        finally:
            _end(daemon)


# Secrets


def test_token_appears_in_no_answer_file_or_argument(closed: Listeners) -> None:
    daemon = closed.daemon
    assert daemon.process is not None
    ask(closed.service, "GET", f"/?token={TOKEN}")
    ask(closed.endpoint, "GET", f"/?token={TOKEN}")
    ask(closed.service, "GET", "/nothing?token=wrong")
    for listener, method, path in closed.routes():
        if method == "GET":
            answer = ask(listener, method, path, closed.headers)
            assert TOKEN.encode() not in answer.body and TOKEN not in str(answer.headers), path
            assert closed.runner["NNI_TRIAL_TOKEN"].encode() not in answer.body, path
    children = [each for each in processes_of(str(daemon.data)) if each.pid != daemon.process.pid]
    names = " ".join(" ".join(each.cmdline()) for each in children)
    assert "keeper" in names and "tuning" in names and "sleep 1000" in names  # all kinds of processes exist
    for child in children:
        assert TOKEN not in " ".join(child.cmdline()), child
        assert TOKEN not in str(child.environ()), child.cmdline()
    assert TOKEN not in " ".join(psutil.Process(daemon.process.pid).cmdline())
    files = [path for path in [*daemon.data.parent.rglob("*")] if path.is_file() and not path.is_symlink()]
    assert len(files) > 10
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


def test_login_redirects_to_the_same_page_without_the_token(closed: Listeners) -> None:
    for listener in (closed.service, closed.endpoint):
        with httpx.Client(base_url=listener, trust_env=False) as browser:
            answer = browser.get("/", params={"token": TOKEN})
            assert answer.status_code == 303 and TOKEN not in str(answer.headers)
            assert "httponly" in answer.headers["set-cookie"].lower()
            assert browser.get("/").status_code == 200
    with httpx.Client(base_url=closed.endpoint, trust_env=False) as browser:  # a cookie belongs to one listener
        port = urlsplit(closed.service).port
        cookie = (
            httpx.get(closed.service, params={"token": TOKEN}, trust_env=False).headers["set-cookie"].partition(";")[0]
        )
        assert cookie.startswith(f"nni_manager_{port}=")
        assert browser.get("/", headers={"Cookie": cookie}).status_code == 401


def test_folders_are_readable_only_by_their_owner(closed: Listeners) -> None:
    folder = closed.daemon.data / closed.id
    for path in (folder, folder / "db", folder / "log", folder / "trials", folder / "checkpoint"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert (closed.daemon.data / "runner-secret").stat().st_mode & 0o777 == 0o600
