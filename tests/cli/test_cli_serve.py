"""`nni-manager serve`: settings passed to the daemon, and reports of a failed start."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest
from click.testing import CliRunner, Result

import nni_manager.app
from nni_manager.cli.main import nni_manager as group
from nni_manager.client import caller
from nni_manager.config import settings
from nni_manager.config.sections.experiment_model import LogLevel
from nni_manager.config.settings import Settings
from nni_manager.domain.errors import AlreadyOwned

pytestmark = pytest.mark.unit

Serve = Callable[..., Result]


class Daemon:
    """Replaces `app.serve`; records its arguments."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.listeners: dict = {}
        self.failure: Exception | None = None

    def serve(self, settings: Settings, **listeners: object) -> int:
        self.settings, self.listeners = settings, listeners
        if self.failure:
            raise self.failure
        return 0


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Daemon:
    for name in [name for name in os.environ if name.startswith("NNI_MANAGER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NNI_MANAGER_DATA", str(tmp_path))
    fake, module = Daemon(), ModuleType("nni_manager.app.serve")
    module.serve = fake.serve
    monkeypatch.setitem(sys.modules, "nni_manager.app.serve", module)
    monkeypatch.setattr(nni_manager.app, "serve", module, raising=False)
    return fake


@pytest.fixture
def serve(daemon: Daemon) -> Serve:
    return lambda *words: CliRunner().invoke(group, ["serve", *words])


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_defaults(serve: Serve, daemon: Daemon, tmp_path: Path) -> None:
    assert serve().exit_code == 0
    assert daemon.settings == Settings(data_dir=tmp_path)
    assert daemon.listeners == {"listen": True, "trials": True, "auto": False, "ready_fd": None, "insecure": False}


def test_everything_given(serve: Serve, daemon: Daemon, tmp_path: Path, pipe: tuple[int, int]) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    (tmp_path / "reading").write_text("s3en\n")
    result = serve(
        "--data-dir",
        str(tmp_path / "d"),
        "--host",
        "0.0.0.0",
        "--port",
        "9000",
        "--log-level",
        "debug",
        "--trial-host",
        "192.0.2.7",
        "--trial-port",
        "9100",
        "--token-file",
        str(tmp_path / "token"),
        "--read-token",
        str(tmp_path / "reading"),
        "--no-listen",
        "--insecure",
        "--auto",
        "--ready-fd",
        str(pipe[1]),
    )
    assert result.exit_code == 0, result.output
    expected = Settings(
        data_dir=tmp_path / "d",
        host="0.0.0.0",
        port=9000,
        log_level="debug",
        token="s3cret",
        read_token="s3en",
        trial_host="192.0.2.7",
        trial_port=9100,
    )
    assert daemon.settings == expected
    assert daemon.listeners == {"listen": False, "trials": False, "auto": True, "ready_fd": pipe[1], "insecure": True}


def test_ports_may_be_left_to_the_daemon(serve: Serve, daemon: Daemon) -> None:
    assert serve("--port", "0", "--trial-port", "0").exit_code == 0
    assert (daemon.settings.port, daemon.settings.trial_port) == (0, 0)


def test_the_token_may_come_from_the_environment(serve: Serve, daemon: Daemon, monkeypatch) -> None:
    monkeypatch.setenv("NNI_MANAGER_TOKEN", "s3cret")
    assert serve().exit_code == 0
    assert daemon.settings.token == "s3cret"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "must not be empty"),
        (b"a\nb", "must be one line"),
        (b"\xff", "not UTF-8 text"),
        ("\u00fc".encode(), "must be one line"),
        (None, "No such file or directory"),
    ],
)
def test_a_token_file_that_cannot_be_used(serve: Serve, tmp_path: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    result = serve("--token-file", str(tmp_path / "token"))
    assert result.exit_code == 2
    assert words in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["--port", "70000"], ["--port", "x"], ["--log-level", "loud"], ["--ready-fd", "1"]])
def test_bad_usage(serve: Serve, daemon: Daemon, words: list[str]) -> None:
    assert serve(*words).exit_code == 2
    assert daemon.settings is None


def test_failure_is_reported_to_both_callers(serve: Serve, daemon: Daemon, pipe: tuple[int, int]) -> None:
    daemon.failure = AlreadyOwned("the data directory /d is in use by process 7")
    result = serve("--ready-fd", str(pipe[1]))
    assert (result.exit_code, result.stderr) == (1, f"nni-manager: {daemon.failure}\n")
    assert os.read(pipe[0], 999) == b"error: the data directory /d is in use by process 7\n"


def test_invalid_settings_are_reported_to_both(serve: Serve, pipe: tuple[int, int], monkeypatch) -> None:
    monkeypatch.setenv("NNI_MANAGER_PORT", "x")
    result = serve("--ready-fd", str(pipe[1]))
    assert result.exit_code == 2 and "NNI_MANAGER_PORT: must be a whole number" in result.stderr
    assert os.read(pipe[0], 999).startswith(b"error: environment: NNI_MANAGER_PORT: must be")


def test_errors_after_ready_are_not_written(serve: Serve, daemon: Daemon, tmp_path: Path) -> None:
    """The daemon closes the descriptor once it is ready; the number may then be another file's."""
    reader, writer = os.pipe()

    def run(settings: Settings, *, ready_fd: int, **_: object) -> int:
        os.close(ready_fd)
        other = os.open(tmp_path / "other", os.O_CREAT | os.O_WRONLY)
        assert other == ready_fd
        raise AlreadyOwned("port 8080 is in use")

    sys.modules["nni_manager.app.serve"].serve = run
    assert serve("--ready-fd", str(writer)).exit_code == 1
    assert (tmp_path / "other").read_bytes() == b""
    os.close(reader)
    os.close(writer)


def test_a_descriptor_that_is_not_open(serve: Serve) -> None:
    result = serve("--ready-fd", "987")
    assert (result.exit_code, result.stderr) == (
        2,
        "nni-manager: --ready-fd 987: this descriptor is not open; remove the option\n",
    )


def test_a_fault_is_logged_with_its_stack(serve: Serve, daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    daemon.failure = KeyError("x")
    result = serve()
    assert result.exit_code == 1
    assert result.stderr.startswith("nni-manager: KeyError('x') at test_cli_serve.py:")
    assert "Traceback" in caplog.text


def test_names_that_stand_twice_are_the_same() -> None:
    """The command line repeats them, because importing them costs time."""
    assert importlib.import_module("nni_manager.cli.daemon.serve").LOG_LEVELS == get_args(LogLevel)


@pytest.mark.parametrize("given", [None, "~/x", "relative/../x"])
def test_the_data_directory_is_the_daemons(given: str | None, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert caller.resolve_data_directory(given) == settings.load({"data_dir": given}, os.environ).data_dir


def test_program_runs_alone_with_stand_in(tmp_path: Path) -> None:
    path = CliRunner().invoke(group, ["stand-in-path"]).stdout.strip()
    program = "import nni; nni.get_next_parameter(); nni.report_final_result(7)"
    environment = {**{name: value for name, value in os.environ.items() if "NNI" not in name}, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout == "Final result: 7\n", done.stderr
