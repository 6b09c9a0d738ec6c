"""Machines that answer late, or stop answering: the sentence says how far a login came."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from nni_manager.machines.ledger import Demand
from nni_manager.machines.ssh import bootstrap, login, login_faults
from nni_manager.machines.ssh.address import Entry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import TIME_LIMITS_S, PreflightFinding, Severity
from nni_manager.platforms.remote import preflight
from tests.platforms.remote.ssh_machines import InProcessMachine

pytestmark = pytest.mark.contract


async def found(machine: InProcessMachine, **fields: Any) -> PreflightFinding:
    entry = Entry.of(machine.entry(**fields))
    [finding] = await preflight.look({entry: Demand(count=0)}, Connections("daemon"))
    return finding


def limit(monkeypatch: pytest.MonkeyPatch, *, connect_s: float = 10.0, login_s: float = 30.0) -> None:
    for module in (login, login_faults):
        monkeypatch.setattr(module, "CONNECT_S", connect_s)
    monkeypatch.setattr(login_faults, "LOGIN_S", login_s)


def configure(text: str) -> None:
    Path(os.environ["HOME"], ".ssh", "config").write_text(text)


def hanging_shell(folder: Path) -> str:
    shell = folder / "hanging"
    shell.write_text("#!/bin/sh\nread answer\nexit 1\n")
    shell.chmod(0o755)
    return str(shell)


async def test_a_slow_login_has_longer_than_a_silent_port(
    machine: InProcessMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, connect_s=0.3)
    machine.login_takes_s = 0.6
    assert (await found(machine)).severity is Severity.FINE


async def test_connect_timeout_of_ssh_config_gives_more_time(
    machine: InProcessMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, connect_s=0.3, login_s=0.3)
    machine.login_takes_s = 0.6
    finding = await found(machine)
    assert (finding.subject, finding.severity) == ("127.0.0.1: login", Severity.AWAY)
    assert "its SSH server answers, but did not log" in finding.sentence and "ConnectTimeout" in finding.fix
    configure("ConnectTimeout 20\n")
    assert (await found(machine)).severity is Severity.FINE


async def test_a_port_without_an_ssh_server(machine: InProcessMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, connect_s=0.3)
    open_ones: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: open_ones.append(writer), "127.0.0.1", 0)
    async with server:
        finding = await found(machine, port=server.sockets[0].getsockname()[1])
        assert (finding.subject, finding.severity) == ("127.0.0.1: port", Severity.AWAY)
        assert "accepts connections, but no SSH server answered" in finding.sentence
        for writer in open_ones:
            writer.close()
            await writer.wait_closed()


async def test_hanging_startup_file_is_not_dead_port(
    machine: InProcessMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nni_manager.machines.ssh.bootstrap._GREETING_S", 0.5)
    machine.shell = hanging_shell(tmp_path)
    finding = await found(machine)
    assert (finding.subject, finding.severity) == ("127.0.0.1: session", Severity.AWAY)
    assert "it is logged in to" in finding.sentence and "~/.bashrc" in finding.fix


@pytest.mark.parametrize(("login_takes_s", "subject"), [(5.0, "login"), (0.0, "session")])
async def test_preflight_timeout_names_step(
    machine: InProcessMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login_takes_s: float, subject: str
) -> None:
    monkeypatch.setattr(preflight, "_LOOK_S", 0.5)
    machine.login_takes_s = login_takes_s
    machine.shell = hanging_shell(tmp_path)
    assert (await found(machine)).subject == f"127.0.0.1: {subject}"


def test_a_preflight_has_time_for_a_slow_machine() -> None:
    assert login_faults.LOGIN_S + bootstrap._GREETING_S <= TIME_LIMITS_S["preflight"]
    assert max(login_faults.LOGIN_S, bootstrap._GREETING_S) < preflight._LOOK_S < TIME_LIMITS_S["preflight"]
