"""`serve`: precedence of settings, the daemon's own end, and its shutdown."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from nni_manager.app import serve
from nni_manager.scheduler.experiments.supervisor import Supervisor
from tests.acceptance.command_line import CommandLine, command_line
from tests.app.foreign_port import free_port
from tests.live_daemon import Daemon


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        line.data.mkdir()
        yield line


@pytest.mark.acceptance
def test_command_line_over_environment_over_file(manager: CommandLine) -> None:
    in_file, in_environment, on_command_line = _free_ports(3)
    (manager.data / "settings.yml").write_text(f"port: {in_file}\nlogLevel: error\n")
    assert _ports(manager.serve("--host", "127.0.0.1")) == [in_file]
    manager.end()
    manager.environment |= {"NNI_MANAGER_PORT": str(in_environment), "NNI_MANAGER_LOG_LEVEL": "info"}
    assert _ports(manager.serve("--host", "127.0.0.1")) == [in_environment]
    manager.end()
    assert _ports(last := manager.serve("--port", str(on_command_line), "--log-level", "warning")) == [on_command_line]
    assert last.log().count(") ready: process ") == 1, "of the second daemon alone"


@pytest.mark.acceptance
def test_start_leaves_folders_of_users_alone(manager: CommandLine) -> None:
    """The data directory may have been NNI's, in which users keep what they like."""
    logs = manager.data / "tensorboard" / "0a1b2c" / "events"
    logs.parent.mkdir(parents=True)
    logs.write_text("x")
    manager.serve("--port", str(_free_ports(1)[0]))
    manager.end()
    assert logs.read_text() == "x"


@pytest.mark.acceptance
def test_settings_that_cannot_be_used(manager: CommandLine) -> None:
    settings = manager.data / "settings.yml"
    settings.write_text("host: 127.0.0.1\nprot: 8080\n")
    code, line = manager.bad("serve", program="nni-manager")
    assert code == 2 and line == f"{settings}:2: prot: unknown field; did you mean port?"
    settings.unlink()
    manager.environment["NNI_MANAGER_PORT"] = "many"
    code, line = manager.bad("serve", program="nni-manager")
    assert code == 2 and "NNI_MANAGER_PORT" in line
    assert manager.traces() == []


@pytest.mark.acceptance
def test_next_daemon_names_lost_address(manager: CommandLine) -> None:
    (port,) = _free_ports(1)
    manager.serve("--port", str(port)).kill()
    killed = manager.run("create", "--config", manager.config(trialCommand="exec sleep 1000"))
    again = f"`nni-manager serve --data-dir {manager.data} --host 127.0.0.1 --port {port}` opens it again"
    words = f"the service at http://127.0.0.1:{port} is gone, because its daemon was killed; {again}"
    assert killed.returncode == 0 and f"warning: {words}\n" in killed.stderr
    assert words in manager.log()
    assert manager.serve("--port", str(port)).terminate() == 0
    assert not (manager.data / "service.json").exists(), "it was closed on purpose"


@pytest.mark.acceptance
def test_one_port_for_two_listeners(manager: CommandLine) -> None:
    (port,) = _free_ports(1)
    manager.environment["NNI_MANAGER_TRIAL_PORT"] = str(port)
    code, line = manager.bad("serve", "--port", str(port), program="nni-manager")
    both = f"--port and --trial-port (port and trialPort) are both {port}; choose another for one of them"
    assert code == 2 and line == f"nni-manager: {both}"
    assert manager.traces() == []


@pytest.mark.alone
@pytest.mark.acceptance
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stream_ends_when_the_daemon_does(manager: CommandLine, number: signal.Signals) -> None:
    daemon = manager.serve()
    assert daemon.process is not None
    id_ = manager.create(trialCommand="exec sleep 1000")
    with daemon.client() as client, client.stream("GET", f"/api/v1/experiments/{id_}/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: state"
        began = time.monotonic()
        daemon.process.send_signal(number)
        for _ in lines:  # to its proper end
            pass
    assert daemon.process.wait(10) == 0
    assert time.monotonic() - began < 1


class _Supervisor:
    def __init__(self) -> None:
        self.is_opening = False
        self.is_ending = False
        self.has_work = False
        self.on_empty = lambda: None
        leftovers = SimpleNamespace(may_run=lambda _: False)
        self.shared = SimpleNamespace(leftovers=leftovers)


@pytest.fixture
def supervisor() -> _Supervisor:
    return _Supervisor()


@pytest.mark.unit
@pytest.mark.looptime
async def test_an_unused_daemon_ends_after_a_minute(supervisor: _Supervisor) -> None:
    stopping = _watched(supervisor)
    await asyncio.sleep(59)
    assert not stopping.is_set()
    await asyncio.sleep(2)
    assert stopping.is_set() and supervisor.is_ending


@pytest.mark.unit
@pytest.mark.looptime
async def test_daemon_ends_with_its_last_experiment(supervisor: _Supervisor) -> None:
    stopping = _watched(supervisor)
    supervisor.has_work = True
    await asyncio.sleep(3600)
    assert not stopping.is_set()
    supervisor.has_work = False
    supervisor.on_empty()
    assert stopping.is_set()


@pytest.mark.unit
@pytest.mark.looptime
async def test_daemon_waits_for_an_experiment_being_made(supervisor: _Supervisor) -> None:
    stopping = _watched(supervisor)
    supervisor.is_opening = True
    supervisor.on_empty()
    assert not stopping.is_set() and not supervisor.is_ending
    supervisor.is_opening = False  # it was refused
    await asyncio.sleep(61)
    assert stopping.is_set()


def _watched(supervisor: _Supervisor) -> asyncio.Event:
    stopping = asyncio.Event()
    serve._end_when_unused(cast(Supervisor, supervisor), stopping)
    return stopping


def _ports(daemon: Daemon) -> list[int]:
    listeners = daemon.call("GET", "/daemon")["listeners"]
    return [int(listener["address"].rpartition(":")[2]) for listener in listeners if listener["kind"] == "service"]


def _free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]
