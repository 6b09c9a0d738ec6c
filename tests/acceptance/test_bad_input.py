"""Unusable input is refused with one sentence, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.acceptance.command_line import CommandLine, command_line
from tests.waiting import until

pytestmark = pytest.mark.acceptance

MIB = 1 << 20


@pytest.fixture
def nnictl(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        yield line


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A serving daemon that must survive all requests."""
    with command_line(tmp_path_factory.mktemp("served")) as line:
        daemon = line.serve("--port", "0")
        yield line
        assert daemon.process is not None and daemon.process.poll() is None
        assert "Traceback" not in daemon.log() and "fault" not in daemon.log(), daemon.log()


# Experiment files


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({"trialConcurency": 3}, "trialConcurency", "unknown field; did you mean trialConcurrency?"),
        ({"maxTrialNumber": "many"}, "maxTrialNumber", "must be a whole number"),
        ({"trialConcurrency": -2}, "trialConcurrency", "must be from 1 to 100000, not -2"),
        ({"trialConcurrency": None}, "trialConcurrency", "set the number of trials that run at the same time"),
        ({"trialCodeDirectory": "nowhere"}, "trialCodeDirectory", "cannot find folder"),
        (
            {"searchSpace": {"x": {"_type": "unifrom", "_value": [0, 1]}}},
            "searchSpace.x",
            "the _type 'unifrom' is unknown; use one of",
        ),
        ({"searchSpaceFile": "space.yml", "searchSpace": None}, "searchSpaceFile", "space.yml"),
        ({"tuner": {"name": "Randon"}}, "tuner.name", "Random"),
        ({"trainingService": {"platform": "lokal"}}, "trainingService.platform", "local"),
        ({"useAnnotation": True}, "useAnnotation", "not supported"),
        ({"experimentWorkingDirectory": "experiment.yml/below"}, "experimentWorkingDirectory", "is not a folder"),
    ],
)
def test_unusable_field_is_refused(served: CommandLine, fields: dict[str, Any], place: str, words: str) -> None:
    config = served.config(**fields)
    with _unchanged(served):
        code, line = served.bad("create", "--config", config)
        assert code == 2
        assert line.startswith(f"{config}:") and f" {place}: " in line and words in line
        assert served.bad("config", "check", config) == (2, line)


def test_gpus_without_a_driver_are_refused(served: CommandLine) -> None:
    section = {"platform": "local", "useActiveGpu": False}
    with _unchanged(served):
        code, line = served.bad("create", "--config", served.config(trialGpuNumber=1, trainingService=section))
    assert code == 2 and "trialGpuNumber" in line


def test_text_that_is_not_a_config_is_refused(served: CommandLine) -> None:
    path = served.folder / "wrong.yml"
    for text, line in (("a: [1, 2\nb: 3\n", 2), ("- 1\n", 0), ("", 0), ("\0", 0), ("a: *b\n", 1)):
        path.write_text(text)
        with _unchanged(served):
            code, sentence = served.bad("create", "--config", path)
        assert code == 2 and sentence.startswith(f"{path}:{line}: " if line else str(path)), sentence
    path.write_bytes(b"a: \xff\n")
    assert served.bad("create", "-c", path) == (2, f"{path}:1: not UTF-8 text; save the file in that encoding")


def test_missing_config_file_starts_no_daemon(nnictl: CommandLine) -> None:
    missing = nnictl.folder / "missing.yml"
    code, line = nnictl.bad("create", "--config", missing)
    assert (code, line) == (
        2,
        f"{missing}: cannot be read: No such file or directory; check the name and its permissions",
    )
    assert nnictl.bad("create", "--config", nnictl.folder)[0] == 2
    assert not nnictl.data.exists() and nnictl.processes() == []


def test_unknown_experiment_or_trial_is_named(served: CommandLine) -> None:
    for words in (
        ["experiment", "status", "nosuch"],
        ["stop", "nosuch"],
        ["resume", "nosuch"],
        ["experiment", "delete", "nosuch", "-y"],
        ["trial", "ls", "nosuch"],
    ):
        code, line = served.bad(*words)
        assert code == 1 and line == (
            "nnictl: cannot find experiment nosuch; `nnictl experiment list --all` shows every experiment"
        )
    assert served.bad("stop") == (
        1,
        "nnictl: no experiment is open, so an ID is required; `nnictl experiment list --all` shows every experiment",
    )
    assert served.bad("update", "concurrency", "--value", "0")[0] == 2
    assert served.bad("nonsense")[0] == 2


# Data directories and listeners


def test_unwritable_data_directory_is_refused(nnictl: CommandLine) -> None:
    below_a_file = nnictl.config() / "data"
    for program, words in (("nnictl", ["experiment", "list"]), ("nni-manager", ["serve", "--no-listen"])):
        code, line = nnictl.bad(*words, "--data-dir", below_a_file, program=program)
        assert code == 2
        assert f"the data directory {below_a_file} cannot be " in line
        assert "Not a directory" in line and "--data-dir" in line
    assert nnictl.processes() == []


def test_second_daemon_names_the_first(nnictl: CommandLine) -> None:
    first = nnictl.serve()
    assert first.process is not None
    sentence = f"nni-manager: the data directory {nnictl.data} is in use by process {first.process.pid}"
    code, said = nnictl.bad("serve", "--no-listen", program="nni-manager")
    assert code == 1 and said.startswith(f"{sentence}; `nni-manager status` shows it")
    assert nnictl.good("experiment", "list"), "the first one is not harmed"


def test_busy_port_names_its_process_and_starts_nothing(nnictl: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, line = nnictl.bad("serve", "--port", port, program="nni-manager")
    name = psutil.Process().name()
    assert (code, line) == (
        1,
        f"nni-manager: port {port} is in use by process {os.getpid()} ({name}); choose another with --port",
    )
    assert nnictl.traces() == [] and not (nnictl.data / "index.sqlite").exists()


def test_public_or_foreign_listen_address_is_refused(nnictl: CommandLine) -> None:
    code, line = nnictl.bad("serve", "--host", "0.0.0.0", program="nni-manager")
    assert code == 2 and "--host 0.0.0.0 can be reached by others: set NNI_MANAGER_TOKEN" in line
    assert not nnictl.data.exists()
    for host in ("192.0.2.1", "no-such-name.invalid"):
        code, line = nnictl.bad("serve", "--insecure", "--host", host, "--port", "0", program="nni-manager")
        assert code == 2 and f"cannot listen on {host}:0" in line
    assert nnictl.traces() == []


def test_data_directory_with_a_long_path_works(tmp_path: Path) -> None:
    folder = tmp_path / ("long " * 20) / ("länger" * 10)
    folder.mkdir(parents=True)
    with command_line(folder) as nnictl:
        assert len(os.fsencode(nnictl.data)) > 200
        assert "4/4 done" in nnictl.good("create", "--config", nnictl.config(), "--foreground")
        assert nnictl.traces() == []


# Requests


@pytest.mark.parametrize("chunked", [False, True])
def test_sixty_megabyte_body_is_refused_unread(served: CommandLine, chunked: bool) -> None:
    daemon = psutil.Process(served.daemon.call("GET", "/daemon")["pid"])
    before = daemon.memory_info().rss
    with _unchanged(served), _listener(served) as client:
        size = {} if chunked else {"Content-Length": str(60 * MIB)}
        headers = {"Content-Type": "application/yaml", **size}
        answer = client.post("/api/v1/experiments", content=_megabytes(60), headers=headers)
        assert daemon.memory_info().rss - before < 30 * MIB
    assert answer.status_code == 413
    assert answer.json() == {"error": "the body is larger than the limit of 8 MB; send less"}


EVIL = (
    "..",
    "../",
    "../../../../secret",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fsecret",
    "..%2fsecret",
    "..%5csecret",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "%00",
    "stdout%00",
    "a%00b",
    "~",
    "%7eroot",
    "a" * 5000,
    "%f0%9f%92%a3",
    "%ff",
    "%0d%0aX-Evil:%201",
    "nnimanager.log%2f..%2f..%2fdb%2fnni.sqlite",
)


def test_path_parameters_cannot_leave_their_folder(served: CommandLine) -> None:
    (served.folder / "secret").write_text("the secret\n")
    id_ = served.create(maxTrialNumber=1)
    served.daemon.wait(id_, "DONE")
    (trial,) = served.daemon.call("GET", f"/experiments/{id_}/trials")["trials"]
    good = {"id": id_, "trialId": trial["id"], "name": "stdout", "sha256": "0" * 64, "question": "trials"}
    good["boardId"] = "3fa01c"
    paths = served.daemon.call("GET", "/openapi.json")["paths"]
    with_parameters = {path: operations for path, operations in paths.items() if "{" in path}
    assert {name for path in with_parameters for name in _parameters(path)} == set(good)
    for path, operations in with_parameters.items():
        for method in operations:
            for evil in EVIL:
                _refuses(served, method.upper(), path.replace(f"{{{_parameters(path)[-1]}}}", evil).format(**good))
    assert served.daemon.status(id_)["counts"] == {"SUCCEEDED": 1}
    served.good("stop", id_)
    served.good("experiment", "delete", id_, "-y")


def test_malformed_request_is_refused(served: CommandLine) -> None:
    host, port = _address(served)
    for raw in (b"GET /api/v1/\0 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\0\1\2\3" * 100, b"GET\r\n\r\n"):
        with socket.create_connection((host, port), timeout=10) as connection:
            connection.sendall(raw)
            assert connection.recv(65536)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 404"), raw
    assert served.daemon.call("GET", "/daemon")["experiments"] == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "the body is not JSON"),
        (b"[1]", "a mapping of fields"),
        (b'{"config": 3}', "config: "),
        (b'{"config": "a: 1", "directory": "relative"}', "directory: must be an absolute path"),
        (b'{"config": "a: 1", "environment": {"A=B": "x"}}', "environment: "),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deep"),
    ],
)
def test_body_that_is_not_an_experiment_is_refused(served: CommandLine, body: bytes, words: str) -> None:
    with _unchanged(served), _listener(served) as client:
        answer = client.post("/api/v1/experiments", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and words in answer.json()["error"]


def test_foreign_host_and_origin_are_refused(served: CommandLine) -> None:
    host, port = _address(served)
    for headers, status in (
        ({}, 200),
        ({"Host": f"localhost:{port}"}, 200),
        ({"Host": f"evil.example:{port}"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": f"http://{host}:{port}"}, 200),
        ({"Origin": f"http://{host}:{port + 1}"}, 403),
    ):
        with _listener(served) as client:
            answer = client.get("/api/v1/experiments", headers=headers)
        assert answer.status_code == status, headers
        assert status == 200 or list(answer.json()) == ["error"]


def test_listener_with_a_token_requires_it(nnictl: CommandLine) -> None:
    token = "Zr8-only-for-this-test"
    nnictl.environment["NNI_MANAGER_TOKEN"] = token
    daemon = nnictl.serve("--port", "0")
    with _listener(nnictl) as client:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": f"Basic {token}"}, 401),
            ({"Authorization": f"Bearer {token}"}, 200),
        ):
            answer = client.get("/api/v1/experiments", headers=headers)
            assert answer.status_code == status
            assert status == 200 or "requires its token" in answer.json()["error"]
        assert client.get("/healthz").status_code == 200
    assert nnictl.good("experiment", "list"), "the control socket asks for none"
    assert daemon.process is not None and not any(
        token in word for word in psutil.Process(daemon.process.pid).cmdline()
    )
    assert daemon.terminate() == 0
    assert token not in daemon.log()


class _unchanged:
    """Check that its block creates no folder, entry or process, except a keeper that checks the machine."""

    def __init__(self, line: CommandLine) -> None:
        self._line = line

    def __enter__(self) -> None:
        self._before = self._picture()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            *before, children = self._before
            *after, _ = self._picture()
            assert after == before
            # The machine check exits on its own, and a new keeper process is not yet recognisable.
            until(lambda: set(self._children()) <= set(children))

    def _picture(self) -> tuple[Any, ...]:
        folders = {path.name for path in self._line.data.iterdir() if path.is_dir()}
        return self._line.daemon.call("GET", "/experiments")["experiments"], folders - {"keeper"}, self._children()

    def _children(self) -> list[int]:
        running = psutil.Process(self._line.daemon.call("GET", "/daemon")["pid"]).children(recursive=True)
        return [child.pid for child in running if child.is_running() and not _is_keeper(child)]


def _is_keeper(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return "trial_runner" in " ".join(process.cmdline())
    return True  # it has ended


def _refuses(line: CommandLine, method: str, path: str) -> None:
    connection = http.client.HTTPConnection(*_address(line), timeout=10)
    connection.request(method, path, body=b"{}", headers={"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status in (400, 404, 405, 414), (method, path, answer.status, body)
    assert answer.headers["X-Evil"] is None
    assert b"the secret" not in body and b"root:" not in body and list(json.loads(body)) == ["error"], (path, body)


def _parameters(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _address(line: CommandLine) -> tuple[str, int]:
    (listener,) = [
        listener for listener in line.daemon.call("GET", "/daemon")["listeners"] if listener["kind"] == "service"
    ]
    url = httpx.URL(listener["address"])
    assert url.port is not None
    return url.host, url.port


def _listener(line: CommandLine) -> httpx.Client:
    host, port = _address(line)
    return httpx.Client(base_url=f"http://{host}:{port}", timeout=20, trust_env=False)


def _megabytes(count: int) -> Iterable[bytes]:
    for _ in range(count):
        yield b"x" * MIB
