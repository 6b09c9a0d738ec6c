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


async def several(machine: InProcessMachine) -> asyncssh.SSHKey:
    """A machine with keys of three kinds; the last one."""
    await machine.stop()
    machine.host_key, *machine.more_host_keys = [
        asyncssh.generate_private_key(kind) for kind in ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")
    ]
    await machine.start()
    return machine.more_host_keys[-1]


async def test_any_key_of_server_can_match_fingerprint(machine: InProcessMachine) -> None:
    """`ssh` records one of them, and not the one that asyncssh would ask for."""
    await several(machine)
    for key in (machine.host_key, *machine.more_host_keys):
        assert (await found(machine, hostKey=key.get_fingerprint())).severity is Severity.FINE


async def test_rsa_key_of_a_server_with_several(machine: InProcessMachine) -> None:
    rsa = await several(machine)
    text = rsa.export_public_key().decode().strip()
    assert (await found(machine, hostKey=text)).severity is Severity.FINE


async def test_fingerprint_that_no_key_has(machine: InProcessMachine) -> None:
    await several(machine)
    finding = await found(machine, hostKey=asyncssh.generate_private_key("ssh-ed25519").get_fingerprint())
    assert finding.severity is Severity.WRONG and "is intercepted" in finding.fix
    assert all(key.get_fingerprint() in finding.sentence for key in (machine.host_key, *machine.more_host_keys))
    assert machine.refused_logins == 0


async def certified(machine: InProcessMachine, authority: asyncssh.SSHKey, **fields: Any) -> None:
    await machine.stop()
    machine.host_certificate = authority.generate_host_certificate(machine.host_key, "machine", **fields)
    await machine.start()


@pytest.mark.parametrize("way", ["fingerprint", "accept-new", "known"])
@pytest.mark.parametrize("has_authority", [False, True])
async def test_certificate_of_an_authority_that_is_not_known(
    machine: InProcessMachine, way: str, has_authority: bool
) -> None:
    """Its key counts as if it had no certificate, as for `ssh`."""
    await certified(machine, asyncssh.generate_private_key("ssh-ed25519"))
    lines = [line_of(machine, machine.host_key)] if way == "known" else []
    if has_authority:
        lines.append(f"@cert-authority {line_of(machine, asyncssh.generate_private_key('ssh-ed25519'))}")
    known_hosts().write_text("".join(lines))
    wanted = {"fingerprint": machine.fingerprint, "accept-new": "accept-new", "known": None}[way]
    if has_authority and way == "accept-new":
        assert "has changed" in (await found(machine, hostKey=wanted)).sentence
    else:
        assert (await found(machine, hostKey=wanted)).severity is Severity.FINE


async def test_unknown_key_with_a_certificate_is_shown(machine: InProcessMachine) -> None:
    await certified(machine, asyncssh.generate_private_key("ssh-ed25519"))
    finding = await found(machine, hostKey=None)
    assert f"its key {machine.fingerprint} is not known" in finding.sentence


async def test_certificate_of_a_known_authority(machine: InProcessMachine) -> None:
    authority = asyncssh.generate_private_key("ssh-ed25519")
    known_hosts().write_text(f"@cert-authority {line_of(machine, authority)}")
    await certified(machine, authority)
    assert (await found(machine, hostKey=None)).severity is Severity.FINE
    await certified(machine, authority, valid_after=0, valid_before=1)
    assert "expired" in (await found(machine, hostKey=None)).sentence
