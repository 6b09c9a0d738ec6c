"""A manager on another machine: its URL and token, checks of its answer, and requests sent to it."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_manager import FakeManager, state

from nni_manager import __version__
from nni_manager.cli.main import nnictl as group
from nni_manager.client.caller import ChosenDaemon, connect
from nni_manager.client.connection import AccessRefused, Unreachable
from nni_manager.domain.errors import InvalidInput, NniManagerError

pytestmark = pytest.mark.acceptance

Run = Callable[..., Result]
DAEMON = {"version": __version__, "dataDirectory": "/data", "endsByItself": False, "pid": 1}


@contextmanager
def server(answer: object, status: int = 200, seen: list[Any] | None = None) -> Iterator[str]:
    """A server with one fixed answer; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if seen is not None:
                seen.append((self.path, self.headers.get("Authorization")))
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{served.server_port}"
        finally:
            served.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NNI_MANAGER_ADDRESS", "NNI_MANAGER_TOKEN", "NNI_MANAGER_DATA"):
        monkeypatch.delenv(name, raising=False)


# answers of the server


def test_manager_version_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setenv("NNI_MANAGER_TOKEN", "s3cret")
    with server(DAEMON, seen=seen) as url:
        client = connect(ChosenDaemon(url=f"{url}/lab/"))
        assert not client.is_here and str(client.address) == f"{url}/lab"
    assert seen == [("/lab/api/v1/daemon", "Bearer s3cret")]
    assert "s3cret" not in repr(client.address)


def test_the_token_may_stand_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setenv("NNI_MANAGER_TOKEN", "of the environment")
    (tmp_path / "token").write_text("of the file\n")
    with server(DAEMON, seen=seen) as url:
        connect(ChosenDaemon(url=url, token_file=tmp_path / "token"))
        with pytest.raises(InvalidInput, match=r"--token-file .* cannot be read"):
            connect(ChosenDaemon(url=url, token_file=tmp_path / "nowhere"))
    assert seen == [("/api/v1/daemon", "Bearer of the file")]


def test_blanks_around_a_token_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    with server(DAEMON, seen=seen) as url:
        monkeypatch.setenv("NNI_MANAGER_TOKEN", " s3cret\r\n")
        connect(ChosenDaemon(url=url))
        monkeypatch.setenv("NNI_MANAGER_TOKEN", "s3cret\nmore")
        with pytest.raises(InvalidInput, match="NNI_MANAGER_TOKEN: must be one line") as refusal:
            connect(ChosenDaemon(url=url))
    assert seen == [("/api/v1/daemon", "Bearer s3cret")] and "s3cret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("answer", "status", "error", "sentence"),
    [
        (
            {"error": "this listener"},
            401,
            AccessRefused,
            "requires a token; set NNI_MANAGER_TOKEN, or give --token-file",
        ),
        ({"error": "not called"}, 403, AccessRefused, "not called"),
        ({"error": "nothing"}, 404, NniManagerError, "is not nni_manager"),
        (b"<html>", 200, NniManagerError, "is not nni_manager"),
        ({"version": "3.0"}, 200, NniManagerError, "is not nni_manager"),
        (["version"], 200, NniManagerError, "is not nni_manager"),
        ({**DAEMON, "version": "0.5.9"}, 200, NniManagerError, f"has version 0.5.9, this nnictl has {__version__}"),
        ({**DAEMON, "version": "10.6.0"}, 200, NniManagerError, "has version 10.6.0"),
        ({**DAEMON, "version": __version__.replace(".", ",")}, 200, NniManagerError, "has version 0,"),
    ],
)
def test_another_server_answers(answer: object, status: int, error: type[Exception], sentence: str) -> None:
    with server(answer, status) as url, pytest.raises(error) as raised:
        connect(ChosenDaemon(url=url))
    assert sentence in str(raised.value) and len(str(raised.value).splitlines()) == 1


def test_wrong_token_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNI_MANAGER_TOKEN", "s3cret")
    with (
        server({"error": "this listener"}, 401) as url,
        pytest.raises(AccessRefused, match="refuses this token") as e,
    ):
        connect(ChosenDaemon(url=url))
    assert "s3cret" not in str(e.value)


def test_no_server_answers() -> None:
    with server(DAEMON) as url:
        pass
    with pytest.raises(Unreachable, match=r"cannot be reached: .*Connection refused"):
        connect(ChosenDaemon(url=url))


@pytest.mark.parametrize(
    "url", ["gpu-box", "gpu-box:8080", "ftp://gpu-box", "http://", "http://a:b@c", "http://a:x", "http://a?token=t"]
)
def test_invalid_url(url: str) -> None:
    with pytest.raises(InvalidInput, match="is not the address of a manager"):
        connect(ChosenDaemon(url=url))


def test_a_secret_in_a_url_is_not_repeated() -> None:
    with pytest.raises(InvalidInput) as raised:
        connect(ChosenDaemon(url="http://me:s3cret@gpu-box:8080"))
    assert "s3cret" not in str(raised.value)


# choice of the daemon


def run(words: list[str]) -> tuple[Result, list[Any]]:
    """The daemon that the command chooses."""
    asked: list[Any] = []

    def connect(place: ChosenDaemon) -> FakeManager:
        asked.append(place)
        return FakeManager()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nni_manager.cli.session.connect", connect)
        return CliRunner().invoke(group, ["trial", "kill", "-T", "0", "abc", *words]), asked


def test_option_over_environment_over_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not run([])[1][0].is_remote
    assert run(["--manager", "http://a"])[1][0].url == "http://a"
    monkeypatch.setenv("NNI_MANAGER_ADDRESS", "http://b")
    assert run([])[1][0].url == "http://b"
    assert run(["--manager", "http://a"])[1][0].url == "http://a"
    assert run(["--data-dir", str(tmp_path)])[1] == [ChosenDaemon(data_directory=tmp_path)]
    assert run(["--token-file", "x"])[1] == [ChosenDaemon(url="http://b", token_file=Path("x"))]


def test_options_before_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ChosenDaemon] = []
    monkeypatch.setattr("nni_manager.cli.session.connect", lambda place: asked.append(place) or FakeManager())
    for early in (["--manager", "http://a", "--token-file=x"], ["--token-file", "x", "--manager=http://a"]):
        CliRunner().invoke(group, [*early, "trial", "kill", "-T", "0", "abc"])
    assert asked == [ChosenDaemon(url="http://a", token_file=Path("x"))] * 2


@pytest.mark.parametrize("words", [["--manager", "http://a", "--data-dir", "."], ["--token-file", "x"]])
def test_options_that_do_not_fit(words: list[str]) -> None:
    result, asked = run(words)
    assert result.exit_code == 2 and asked == [] and len(result.stderr.splitlines()) == 1


# what is sent


CONFIG = {
    "searchSpaceFile": "space.json",
    "trialCommand": "python3 trial.py",
    "trialCodeDirectory": "code",
    "trialConcurrency": 1,
    "tuner": {"className": "mine.Mine", "codeDirectory": "code/tuners"},
    "trainingService": {"platform": "local"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "code" / "tuners").mkdir(parents=True)
    (tmp_path / "code" / "trial.py").write_text("print(1)\n")
    (tmp_path / "code" / "tuners" / "mine.py").write_text("class Mine: pass\n")
    (tmp_path / "space.json").write_text('{"x": {"_type": "choice", "_value": [1]}}')
    return write(tmp_path / "experiment.json", CONFIG)


def write(path: Path, config: dict[str, Any]) -> Path:
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return path


def create(nnictl: Run, file: Path, *words: str) -> Result:
    return nnictl("create", "--config", str(file), "--manager", "http://gpu-box:8080", *words)


def test_files_are_read_here_and_code_is_sent(nnictl: Run, manager: FakeManager, file: Path) -> None:
    manager.add(state("new00000", endpoint=None))
    result = create(nnictl, file)
    assert result.exit_code == 0, result.output
    (_, sha256), (_, text, caller) = manager.calls
    config = json.loads(text)
    assert config["searchSpace"] == {"x": {"_type": "choice", "_value": [1]}} and "searchSpaceFile" not in config
    assert config["trialCodeDirectory"] == "." and config["tuner"]["codeDirectory"] == "tuners"
    assert "trialCodeDirectory" not in config["trainingService"] and "experimentWorkingDirectory" not in config
    assert caller["code"] == sha256 and caller["file"] == str(file)
    assert not {"environment", "interpreter", "directory"} & set(caller), "they mean nothing there"
    assert b"tuners/mine.py" in gzip.decompress(manager.code[sha256])
    assert str(file.parent) not in text
    assert "Page  http://gpu-box:8080/experiments/new00000" in result.stdout
    assert result.stdout.endswith("Web portal URLs: http://gpu-box:8080/experiments/new00000\n")


def test_known_code_is_not_sent_again(nnictl: Run, manager: FakeManager, file: Path) -> None:
    for _ in range(2):
        assert create(nnictl, file).exit_code == 0
    assert [call[0] for call in manager.calls] == ["code", "create", "create"]


def test_a_platforms_own_code_directory_is_what_counts(nnictl: Run, manager: FakeManager, file: Path) -> None:
    service = {"platform": "local", "trialCodeDirectory": "code/tuners"}
    assert create(nnictl, write(file, {**CONFIG, "trainingService": service})).exit_code == 0
    (_, sha256), (_, text, _) = manager.calls
    assert b"mine.py" in (packed := gzip.decompress(manager.code[sha256])) and b"trial.py" not in packed
    assert json.loads(text)["tuner"]["codeDirectory"] == "."


def test_the_working_directory_is_the_managers(nnictl: Run, manager: FakeManager, file: Path) -> None:
    create(nnictl, write(file, {**CONFIG, "experimentWorkingDirectory": "/scratch"}))
    assert json.loads(manager.calls[-1][1])["experimentWorkingDirectory"] == "/scratch"


def test_a_registered_name_is_the_managers_business(nnictl: Run, manager: FakeManager, file: Path) -> None:
    assert create(nnictl, write(file, {**CONFIG, "tuner": {"name": "Theirs"}})).exit_code == 0
    assert json.loads(manager.calls[-1][1])["tuner"] == {"name": "Theirs"}


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        (
            {"tuner": {"className": "a.B", "codeDirectory": "."}},
            "tuner.codeDirectory: must be inside trialCodeDirectory",
        ),
        ({"trialConcurrency": 0}, "trialConcurrency: must be from 1 to"),
        ({"searchSpaceFile": "nowhere.json"}, "cannot find file"),
        ({"trialCodeDirectory": "nowhere"}, "cannot find folder"),
    ],
)
def test_invalid_config_is_refused_before_sending(
    nnictl: Run, manager: FakeManager, file: Path, fields: dict, word: str
) -> None:
    result = create(nnictl, write(file, {**CONFIG, **fields}))
    assert result.exit_code == 2 and word in result.stderr, result.output
    assert manager.calls == []


def test_code_that_may_not_travel(nnictl: Run, manager: FakeManager, file: Path) -> None:
    (file.parent / "code" / "out").symlink_to("/etc")
    result = create(nnictl, file)
    assert result.exit_code == 2 and "leads out of it" in result.stderr
    assert manager.calls == []
