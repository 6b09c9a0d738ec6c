"""Lines of `~/.ssh/config` with which `ssh` logs in, or that need a sentence of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from nni_manager.machines.ledger import Demand
from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.faults import MachineFault
from nni_manager.machines.ssh.login import unknown_key
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.remote.preflight import look
from tests.platforms.remote.ssh_machines import InProcessMachine

pytestmark = pytest.mark.contract


async def found(machine: InProcessMachine, **fields: Any) -> PreflightFinding:
    entry = machine.entry(**{"password": None, **fields})
    [finding] = await look({Entry.of(entry): Demand(count=0)}, Connections("daemon"))
    return finding


def configure(text: str) -> None:
    Path(os.environ["HOME"], ".ssh", "config").write_text(text)


def key(machine: InProcessMachine, path: Path) -> Path:
    """A key that the machine accepts, with its public key in the same folder."""
    made = asyncssh.generate_private_key("ssh-ed25519")
    made.write_private_key(str(path))
    made.write_public_key(f"{path}.pub")
    path.chmod(0o600)
    machine.keys.append(made.convert_to_public())
    return path


@pytest.mark.parametrize("place", ["127.0.0.1", "*"])
async def test_missing_identity_file_is_skipped(machine: InProcessMachine, tmp_path: Path, place: str) -> None:
    configure(f"Host {place}\n IdentityFile /absent/key\n IdentityFile {key(machine, tmp_path / 'key')}\n")
    assert (await found(machine)).severity is Severity.FINE


async def test_missing_certificate_is_skipped(machine: InProcessMachine, tmp_path: Path) -> None:
    configure(f"IdentityFile {key(machine, tmp_path / 'key')}\nCertificateFile /absent/key-cert.pub\n")
    assert (await found(machine)).severity is Severity.FINE


async def test_missing_identity_file_is_named_if_login_fails(machine: InProcessMachine) -> None:
    configure("IdentityFile /absent/key\n")
    finding = await found(machine)
    assert (finding.subject, finding.severity) == ("127.0.0.1: login", Severity.WRONG)
    assert "~/.ssh/config names /absent/key, which cannot be read" in finding.sentence


async def test_missing_identity_file_is_not_needed_for_a_key_file(machine: InProcessMachine, tmp_path: Path) -> None:
    configure("IdentityFile /absent/key\n")
    assert (await found(machine, sshKeyFile=str(key(machine, tmp_path / "key")))).severity is Severity.FINE


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, machine: InProcessMachine, tmp_path: Path) -> Iterator[None]:
    """An agent that holds further keys."""
    place = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", place], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
    yield
    process.terminate()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("suffix", ["", ".pub"])
@pytest.mark.parametrize("is_only", ["yes", "no"])
async def test_key_of_the_agent_alone(
    machine: InProcessMachine, tmp_path: Path, agent: None, is_only: str, suffix: str
) -> None:
    """Its public half is on the disk."""
    private = key(machine, tmp_path / "key")
    await asyncio.to_thread(subprocess.run, ["ssh-add", "-q", private], check=True)
    private.unlink()
    configure(f"IdentityFile {private}{suffix}\nIdentitiesOnly {is_only}\n")
    assert (await found(machine)).severity is Severity.FINE


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ServerAliveInterval 1m", "line 1: Invalid ServerAliveInterval integer value: 1m"),
        ('Match host 127.0.0.1 exec "test 1 = 1"', "line 1: Invalid match condition"),
    ],
)
async def test_unsupported_config_line_is_reported_as_library_limit(
    machine: InProcessMachine, line: str, words: str
) -> None:
    configure(f"{line}\n  User nobody\n")
    finding = await found(machine)
    assert (finding.subject, finding.severity) == ("127.0.0.1: login", Severity.WRONG)
    assert "SSH library (asyncssh) cannot read" in finding.sentence and words in finding.sentence
    assert "a number of seconds" in finding.fix and "without `=`" in finding.fix


@pytest.mark.parametrize(
    "text",
    [
        "Host elsewhere\n  ServerAliveInterval 1m\nHost *\n  ServerAliveInterval 60\n",
        "Match host 127.0.0.1 exec true\n  ServerAliveCountMax 3\n",
    ],
)
async def test_the_way_out_of_that_limit(machine: InProcessMachine, tmp_path: Path, text: str) -> None:
    configure(f"{text}  IdentityFile {key(machine, tmp_path / 'key')}\n")
    assert (await found(machine)).severity is Severity.FINE


async def test_unreadable_configuration_is_not_a_known_key(machine: InProcessMachine) -> None:
    configure("ServerAliveInterval 1m\n")
    with pytest.raises(MachineFault, match="asyncssh"):
        await unknown_key(machine.entry(hostKey=None))
