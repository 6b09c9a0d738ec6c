"""Access of another user to the daemon's listeners and sockets: real processes of two users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.live_daemon import LISTENING, Daemon, running_daemon
from tests.other_user import DAEMON, NOBODY, command, output_of

pytestmark = [pytest.mark.acceptance, pytest.mark.true_start, pytest.mark.machines, pytest.mark.timeout(120)]

ASK = """
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=20)
connection.request(sys.argv[3], sys.argv[4], sys.stdin.buffer.read() or None, {"Content-Type": "application/json"})
answer = connection.getresponse()
print(answer.status, answer.read().decode(), end="")
"""
SEND_AND_CLOSE = """
data = open(0, "rb").read()
for _ in range(50):
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
        if sys.argv[3]:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(data)
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with _daemon(tmp_path_factory.mktemp("open")) as daemon:
        yield daemon


@contextmanager
def _daemon(folder: Path, *arguments: str, **environment: str) -> Iterator[Daemon]:
    """A daemon without a token, with its own sockets."""
    with tempfile.TemporaryDirectory(prefix="nni-") as runtime:
        own = {"XDG_RUNTIME_DIR": runtime, "NNI_MANAGER_TOKEN": "", **environment}
        with running_daemon(folder, *LISTENING, *arguments, environment=own) as daemon:
            yield daemon


def _service(daemon: Daemon) -> tuple[str, int]:
    listeners = {each["kind"]: each["address"] for each in daemon.call("GET", "/daemon")["listeners"]}
    parts = urlsplit(listeners["service"])
    return str(parts.hostname), int(parts.port or 0)


def _ask(uid: int, at: tuple[str, int], method: str, path: str, body: object = None) -> tuple[int, str]:
    given = b"" if body is None else json.dumps(body).encode()
    status, _, answer = output_of(uid, ASK, at[0], str(at[1]), method, path, given=given).partition(" ")
    return int(status), answer


def _experiment_config(command: str) -> str:
    config = {
        "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": 1,
        "maxTrialNumber": 1,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
    }
    return json.dumps(config)


def _experiment(folder: Path, command: str) -> dict[str, Any]:
    environment = {"PATH": os.environ["PATH"]}
    body = {"config": _experiment_config(command), "directory": str(folder), "environment": environment}
    return {**body, "interpreter": sys.executable}


def test_another_user_starts_no_experiment(daemon: Daemon, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    status, answer = _ask(
        NOBODY, _service(daemon), "POST", "/api/v1/experiments", _experiment(tmp_path, f"id > {proof}")
    )
    assert status == 403 and "--token" in answer and "allowLocalUsers" in answer, answer
    assert daemon.call("GET", "/experiments")["experiments"] == []


@pytest.mark.parametrize("path", ["/", "/api/v1/experiments", "/metrics", "/static/style.css", "/openapi.json"])
def test_another_user_reads_nothing(daemon: Daemon, path: str) -> None:
    at = _service(daemon)
    assert _ask(NOBODY, at, "GET", path)[0] == 403
    assert _ask(NOBODY, at, "GET", "/healthz")[0] == 200
    assert _ask(os.getuid(), at, "GET", path)[0] == 200


def test_another_user_cannot_use_an_endpoint(daemon: Daemon, tmp_path: Path) -> None:
    body = {**_experiment(tmp_path, "sleep 1000"), "endpoint": {"port": 0}}
    id = daemon.call("POST", "/experiments", json=body)["id"]
    try:
        listeners = {each["kind"]: each["address"] for each in daemon.call("GET", "/daemon")["listeners"]}
        parts = urlsplit(listeners["endpoint"])
        at = (str(parts.hostname), int(parts.port or 0))
        assert _ask(NOBODY, at, "GET", "/api/v1/nni/experiment")[0] == 403
        assert _ask(os.getuid(), at, "GET", "/api/v1/nni/experiment")[0] == 200
    finally:
        daemon.call("POST", f"/experiments/{id}/stop")
        daemon.wait(id, "STOPPED")
        daemon.call("DELETE", f"/experiments/{id}")


@pytest.mark.parametrize("linger", ["", "0"])
def test_request_of_an_exited_sender_does_nothing(daemon: Daemon, tmp_path: Path, linger: str) -> None:
    """The kernel reports root as the user of a closed connection. `linger`: close with FIN or RST."""
    host, port = _service(daemon)
    body = json.dumps(_experiment(tmp_path, "true")).encode()
    head = (
        f"POST /api/v1/experiments HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    output_of(NOBODY, SEND_AND_CLOSE, host, str(port), linger, given=head.encode() + body)
    assert _ask(os.getuid(), (host, port), "GET", "/api/v1/experiments")[0] == 200  # by now the daemon has read them
    assert daemon.call("GET", "/experiments")["experiments"] == []


def test_named_users_are_admitted(tmp_path: Path) -> None:
    with _daemon(tmp_path, "--allow-local-users", "daemon") as daemon:
        at = _service(daemon)
        assert [_ask(uid, at, "GET", "/metrics")[0] for uid in (DAEMON, NOBODY)] == [200, 403]


def test_allow_local_users_admits_every_user(tmp_path: Path) -> None:
    with _daemon(tmp_path, NNI_MANAGER_ALLOW_LOCAL_USERS="true") as daemon:
        assert _ask(NOBODY, _service(daemon), "GET", "/metrics")[0] == 200


def test_token_serves_every_user(tmp_path: Path) -> None:
    """Our own user needs it, too: a connection from root may be a proxy."""
    with _daemon(tmp_path, NNI_MANAGER_TOKEN="correct horse battery") as daemon:
        at = _service(daemon)
        assert [_ask(uid, at, "GET", "/metrics")[0] for uid in (NOBODY, os.getuid())] == [401, 401]
        program = ASK.replace('"Content-Type": "application/json"', '"Authorization": "Bearer correct horse battery"')
        assert output_of(NOBODY, program, at[0], str(at[1]), "GET", "/metrics").startswith("200 ")


FAKE_DAEMON = """
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
listener.listen()
print("ready", flush=True)
while True:
    connected = listener.accept()[0]
    connected.settimeout(1)
    try:
        sys.stdout.write(repr(connected.recv(1 << 20)) + "\\n")
        sys.stdout.flush()
    except OSError:
        pass
"""


def test_fake_control_socket_gets_no_request(tmp_path: Path) -> None:
    """State after a reboot: the pointer file names a socket below /tmp that no longer exists."""
    data, code, home = (tmp_path / name for name in ("data", "code", "home"))
    for folder in (data, code, home):
        folder.mkdir()
    config = json.loads(_experiment_config("true"))
    (code / "experiment.json").write_text(json.dumps({**config, "experimentWorkingDirectory": str(data)}))
    with tempfile.TemporaryDirectory(prefix="nni-") as place, tempfile.TemporaryDirectory(prefix="nni-") as runtime:
        os.chmod(place, 0o1777)  # like /tmp
        program = "os.mkdir(sys.argv[1]); sys.argv[1] += '/s'\n" + FAKE_DAEMON
        with subprocess.Popen(command(NOBODY, program, f"{place}/nni"), stdout=subprocess.PIPE, text=True) as fake:
            try:
                assert fake.stdout is not None and fake.stdout.readline() == "ready\n"
                pointer = {"socket": f"{place}/nni/s", "pid": 1, "version": "0.6.0"}
                (data / "control.json").write_text(json.dumps(pointer))
                own = {
                    "HOME": str(home),
                    "NNI_MANAGER_DATA": str(data),
                    "XDG_RUNTIME_DIR": runtime,
                    "NNI_MANAGER_TOKEN": "",
                    "SECRET_OF_MINE": "hunter2-4711",
                }
                _run(["nnictl", "create", "--config", str(code / "experiment.json")], own)
                _run(["nnictl", "stop", "--all"], own)
                _run(["nni-manager", "stop"], own)
            finally:
                fake.kill()
            heard = fake.stdout.read()
    assert "hunter2-4711" not in heard and heard.replace("b''\n", "") == ""


def _run(words: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name(words[0])), *words[1:]],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)


@pytest.mark.parametrize("planted", ["folder", "settings.yml", "algorithms.json"])
def test_planted_data_directory_is_not_obeyed(tmp_path: Path, planted: str) -> None:
    """The token in the planted settings would let its author run commands as this user."""
    with tempfile.TemporaryDirectory(prefix="nni-") as runtime:
        data = Path(runtime) / "data"
        data.mkdir(0o777)
        (data / "settings.yml").write_text("token: 0123456789abcdef0123\nport: 0\n")
        (data / "algorithms.json").write_text('{"algorithms": []}')
        os.chown(data if planted == "folder" else data / planted, NOBODY, NOBODY)
        environment = {**os.environ, "XDG_RUNTIME_DIR": runtime, "HOME": runtime, "NNI_MANAGER_DATA": str(data)}
        program = [sys.executable, "-m", "nni_manager"]
        try:
            for line in ("experiment list", "algo list", "serve", "platform clean", "stop --all"):
                words = line.split()
                done = subprocess.run([*program, *words], env=environment, capture_output=True, text=True, check=False)
                assert done.returncode != 0 and "belongs to the user nobody" in done.stderr, (words, done)
                assert "--insecure-data-dir" in done.stderr
            assert not (data / "daemon.lock").exists()
            words = ["experiment", "list", "--insecure-data-dir"]
            done = subprocess.run([*program, *words], env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0 or "no experiment" in done.stderr, done
        finally:
            subprocess.run([*program, "stop", "--insecure-data-dir"], env=environment, capture_output=True, check=False)
