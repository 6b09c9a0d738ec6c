"""Host keys of machines: what `known_hosts` may have, and servers with several keys or with certificates."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from nni_manager.machines.ledger import Demand
from nni_manager.machines.ssh.address import Entry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.remote.preflight import look
from tests.platforms.remote.ssh_machines import InProcessMachine

pytestmark = pytest.mark.contract


async def found(machine: InProcessMachine, **fields: Any) -> PreflightFinding:
    [finding] = await look({Entry.of(machine.entry(**fields)): Demand(count=0)}, Connections("daemon"))
    return finding


def known_hosts() -> Path:
    return Path(os.environ["HOME"], ".ssh", "known_hosts")


def line_of(machine: InProcessMachine, key: asyncssh.SSHKey) -> str:
    return f"[127.0.0.1]:{machine.port} {key.export_public_key().decode()}"


async def test_lines_that_cannot_be_read_are_skipped(
    machine: InProcessMachine, caplog: pytest.LogCaptureFixture
) -> None:
    """As `ssh` does; a line that is broken is not one with all that follows it."""
    line = line_of(machine, machine.host_key)
    known_hosts().write_text(f"garbage\n@unheard-of {line}|1|salt {line.split(' ', 1)[1]}{line}")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert (await found(machine, hostKey=None)).severity is Severity.FINE
    said = [record.getMessage() for record in caplog.records if "known_hosts" in record.name]
    assert [text.split(" ")[0] for text in said] == [f"{known_hosts()}:{number}" for number in (1, 2, 3)]
