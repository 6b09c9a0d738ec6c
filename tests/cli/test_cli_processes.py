"""nnictl as a real process: start-up, signals, pipes and terminals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_manager import state
from stand_in_daemon import StandInDaemon

from nni_manager import __version__

pytestmark = pytest.mark.acceptance

# a shell that runs tests in the background hands on that SIGINT is ignored
NNICTL = """
import signal
from nni_manager.cli.main import nnictl
signal.signal(signal.SIGINT, signal.default_int_handler)
nnictl(prog_name="nnictl")
"""
HEAVY = {
    "asyncio",
    "httpx",
    "http.client",
    "yaml",
    "pydantic",
    "fastapi",
    "uvicorn",
    "sqlite3",
    "nni_manager.config",
    "nni_manager.app",
    "nni_manager.api",
    "nni_manager.client.manager_client",
}
#: Modules for reading closed experiments without a daemon.
READING = {"asyncio", "ssl", "httpx", "yaml", "pydantic", "fastapi", "uvicorn"}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[StandInDaemon]:
    with StandInDaemon(tmp_path).running() as daemon:
        yield daemon


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yml"
    path.write_text("trialCommand: 'true'\n")
    return path


def start(daemon: StandInDaemon, *words: str, **options: object) -> subprocess.Popen:
    environment = {**os.environ, "NNI_MANAGER_DATA": str(daemon.directory)}
    return subprocess.Popen([sys.executable, "-c", NNICTL, *words], env=environment, **options)


def capture(daemon: StandInDaemon, *words: str) -> tuple[int, str, str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start(daemon, *words, **pipes) as process:
        out, err = process.communicate(timeout=30)
    return process.returncode, out, err


_ALL_COMMANDS = (
    "from nni_manager.cli.main import nnictl as n; [n.get_command(None, name) for name in n.list_commands(None)]"
)


@pytest.mark.parametrize(
    ("imports", "heavy"),
    [
        (_ALL_COMMANDS, HEAVY),
        ("import nni_manager.app.closed_experiments", READING),
        ("import nni_manager.app.serve", {"nni_manager.web.pages", "nni_manager.web.report", "jinja2", "yaml"}),
        (
            "import nni_manager.cli.main",
            {"nni_manager.cli.experiment", "nni_manager.cli.trial", "nni_manager.programs"},
        ),
    ],
)
def test_start_up_imports_nothing_heavy(imports: str, heavy: set[str]) -> None:
    code = f"import sys; {imports}; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("program", ["nnictl", "nni-manager"])
def test_the_installed_commands(program: str) -> None:
    path = Path(sys.executable).with_name(program)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == __version__


def test_python_m_is_nni_manager() -> None:
    command = [sys.executable, "-m", "nni_manager", "serve", "--nope"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr == "nni-manager: No such option '--nope'; see `nni-manager serve --help`\n"


def test_create_in_the_foreground_to_the_end(daemon: StandInDaemon, config: Path) -> None:
    best = {"trialId": "ab1cd", "value": 0.5, "parameters": {"x": 1}}
    done = state(status="DONE", counts={"SUCCEEDED": 10}, best=best)
    daemon.states = [state(), state(counts={"SUCCEEDED": 5}), done]
    code, out, err = capture(daemon, "create", "-c", str(config), "--foreground")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0:3:2] == ["Experiment k3v9x0qa (digits) started.", "Logs  /data/k3v9x0qa"]
    assert "10/10 done, 0 running, 0 failed; best 0.5 (trial ab1cd); 1 min 0 s" in lines
    assert lines[-1] == (
        "Experiment k3v9x0qa is closed; `nnictl trial ls k3v9x0qa` shows its trials; `nnictl view k3v9x0qa` opens its"
        " page again."
    )
    assert ("POST", "/api/v1/experiments/k3v9x0qa/stop") in daemon.requests
    assert daemon.bodies[0]["config"] == "trialCommand: 'true'\n" and daemon.bodies[0]["directory"] == str(
        config.parent
    )


def test_ctrl_c_stops_the_experiment(daemon: StandInDaemon, config: Path) -> None:
    daemon.states = [state()]
    with start(daemon, "create", "-c", str(config), "-f", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while b"0/10 done" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert daemon.requests[-1] == ("POST", "/api/v1/experiments/k3v9x0qa/stop")
    assert b"`nnictl resume k3v9x0qa`" in err and b"Traceback" not in err


def test_a_terminal_gets_one_line_that_changes(daemon: StandInDaemon, config: Path) -> None:
    best = {"trialId": "ab1cd", "value": 0.5, "parameters": {"x": 1}}
    daemon.states = [state(), state(status="DONE", counts={"SUCCEEDED": 10}, best=best)]
    master, terminal = pty.openpty()
    with start(daemon, "create", "-c", str(config), "-f", stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        shown = b"".join(iter(lambda: _read(master), b"")).decode()
        process.wait(30)
    os.close(master)
    assert process.returncode == 0, shown
    assert "\r\x1b[K10/10 done, 0 running, 0 failed; best 0.5 (trial ab1cd); 1 min 0 s\r\n" in shown


def test_disconnected_reader_is_not_an_error(daemon: StandInDaemon) -> None:
    daemon.states = [state()]
    reader, writer = os.pipe()
    os.close(reader)
    with start(daemon, "experiment", "list", "--json", stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        _, err = process.communicate(timeout=30)
    assert b"Traceback" not in err


@pytest.mark.parametrize("words", [("experiment", "list"), ("experiment", "list", "--json")])
def test_a_closed_standard_output_makes_a_command_quiet(daemon: StandInDaemon, words: tuple[str, ...]) -> None:
    daemon.states = [state()]
    with start(daemon, *words, preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE) as process:
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")


def test_a_refusal_of_the_daemon_is_one_sentence(daemon: StandInDaemon) -> None:
    daemon.states = [state("other000")]
    code, _, err = capture(daemon, "trial", "ls", "other000")
    assert (code, err) == (
        1,
        "nnictl: there is nothing at /api/v1/experiments/other000/trials?order=sequence&limit=1000&offset=0\n",
    )


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # Linux: the terminal is not open any more
        return b""
