"""`RevokedHostKeys` of ssh_config: lists of keys and KRLs, made by the real ssh-keygen."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import asyncssh
import pytest

from nni_manager.machines.ledger import Demand
from nni_manager.machines.ssh import known_hosts
from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.revoked_keys import RevokedKeys
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.remote.preflight import look
from tests.platforms.remote.ssh_machines import InProcessMachine

pytestmark = pytest.mark.contract

#: How a file names a key, with the words of a KRL specification.
_KRL = {"krl": "", "sha1": "sha1: ", "sha256": "sha256: ", "key": "key: "}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "revoked"


def _config(text: str) -> None:
    Path(os.environ["HOME"], ".ssh", "config").write_text(text)


def _known(machine: InProcessMachine, before: str = "") -> None:
    line = f"{before}[127.0.0.1]:{machine.port} {machine.host_key.export_public_key().decode()}"
    Path(os.environ["HOME"], ".ssh", "known_hosts").write_text(line)


def _list(file: Path, key: asyncssh.SSHKey) -> None:
    file.write_bytes(b"# keys that were stolen\n\nnot a key\n" + key.export_public_key())


def _make_krl(file: Path, specification: str, authority: asyncssh.SSHKey | None = None) -> None:
    keygen = shutil.which("ssh-keygen")
    assert keygen is not None, "install openssh-client"
    rules = file.with_name("rules")
    rules.write_text(specification)
    command = [keygen, "-q", "-k", "-f", str(file)]
    if authority is not None:
        file.with_name("authority.pub").write_bytes(authority.export_public_key())
        command += ["-s", str(file.with_name("authority.pub"))]
    subprocess.run([*command, str(rules)], check=True, capture_output=True)


async def _finding(machine: InProcessMachine, wanted: str | None = None) -> PreflightFinding:
    (finding,) = await look({Entry.of(machine.entry(hostKey=wanted)): Demand(count=0)}, Connections("daemon"))
    return finding


@pytest.mark.parametrize("form", ["list", *_KRL])
@pytest.mark.parametrize("wanted", ["accept-new", "fingerprint", "key", None])
async def test_revoked_key_is_refused(machine: InProcessMachine, file: Path, form: str, wanted: str | None) -> None:
    public = machine.host_key.export_public_key().decode()
    if form == "list":
        _list(file, machine.host_key)
    else:
        _make_krl(file, _KRL[form] + public)
    _config(f"Host 127.0.0.1\n  RevokedHostKeys {file}\n")
    _known(machine)
    wanted = {"fingerprint": machine.fingerprint, "key": public}.get(wanted or "", wanted)
    finding = await _finding(machine, wanted)
    assert finding.severity is Severity.WRONG and "is revoked" in finding.sentence
    assert machine.refused_logins == 0


@pytest.mark.parametrize("form", ["list", "krl"])
async def test_other_keys_are_accepted(machine: InProcessMachine, file: Path, form: str) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519")
    if form == "list":
        _list(file, other)
    else:
        _make_krl(file, other.export_public_key().decode())
    _config(f"RevokedHostKeys {file}\n")
    _known(machine)
    assert (await _finding(machine)).severity is Severity.FINE


@pytest.mark.parametrize("content", [None, b"SSHKRL\n\0\0", b"SSHKRL\n\0" + b"\0" * 60])
async def test_unreadable_file_refuses_all_keys(machine: InProcessMachine, file: Path, content: bytes | None) -> None:
    if content is not None:
        _write(file, content)
    _config(f"RevokedHostKeys {file}\n")
    _known(machine)
    finding = await _finding(machine)
    assert finding.severity is Severity.WRONG and str(file) in finding.sentence and "RevokedHostKeys" in finding.fix


async def test_file_of_the_machine_counts_without_one_of_the_user(
    machine: InProcessMachine, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _list(file, machine.host_key)
    (tmp_path / "ssh_config").write_text(f"Host *\n  RevokedHostKeys {file}\n  SendEnv LANG LC_*\n")
    monkeypatch.setattr(known_hosts, "_CONFIG_OF_MACHINE", str(tmp_path / "ssh_config"))
    _known(machine)
    assert "is revoked" in (await _finding(machine)).sentence
    _config("RevokedHostKeys none\n")
    assert (await _finding(machine)).severity is Severity.FINE


async def test_revoked_authority_vouches_for_no_host(machine: InProcessMachine, file: Path) -> None:
    authority = await _certify(machine)
    _list(file, authority)
    _config(f"RevokedHostKeys {file}\n")
    assert "is revoked" in (await _finding(machine)).sentence


async def test_authority_with_revoked_certificates_vouches_for_no_host(machine: InProcessMachine, file: Path) -> None:
    """The plain key of the machine is judged then."""
    authority = await _certify(machine)
    _make_krl(file, "serial: 7\n", authority)
    _config(f"RevokedHostKeys {file}\n")
    assert "is not known" in (await _finding(machine)).sentence
    _known(machine)
    assert (await _finding(machine)).severity is Severity.FINE


@pytest.mark.parametrize("form", ["list", *_KRL])
async def test_revoked_key_in_a_certificate_is_refused(machine: InProcessMachine, file: Path, form: str) -> None:
    await _certify(machine)
    if form == "list":
        _list(file, machine.host_key)
    else:
        _make_krl(file, _KRL[form] + machine.host_key.export_public_key().decode())
    _config(f"RevokedHostKeys {file}\n")
    finding = await _finding(machine)
    assert finding.severity is Severity.WRONG and machine.refused_logins == 0
    _known(machine)
    assert (await _finding(machine)).severity is Severity.WRONG


async def test_machine_config_with_unsupported_options_is_read(
    machine: InProcessMachine, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _list(file, machine.host_key)
    (tmp_path / "more").mkdir()
    odd = "Host *\n  ServerAliveInterval 1m\nMatch localnetwork 10.0.0.0/8\n  RevokedHostKeys /nowhere\nHost *\n"
    _write(tmp_path / "ssh_config", f"{odd}Include more/*.conf\n".encode())
    monkeypatch.setattr(known_hosts, "_CONFIG_OF_MACHINE", str(tmp_path / "ssh_config"))
    _known(machine)
    assert (await _finding(machine)).severity is Severity.FINE
    _write(
        tmp_path / "more" / "a.conf",
        f'Host !127.* *\n RevokedHostKeys none\nHost 127.*\nRevokedHostKeys="{file}"\n'.encode(),
    )
    assert "is revoked" in (await _finding(machine)).sentence


async def _certify(machine: InProcessMachine) -> asyncssh.SSHKey:
    """An authority that is trusted for the machine, and has certified its key."""
    authority = asyncssh.generate_private_key("ssh-ed25519")
    machine.host_certificate = authority.generate_host_certificate(machine.host_key, "m", principals=["127.0.0.1"])
    await machine.stop()
    await machine.start()
    line = f"@cert-authority [127.0.0.1]:{machine.port} {authority.export_public_key().decode()}"
    _write(Path(os.environ["HOME"], ".ssh", "known_hosts"), line.encode())
    return authority


def _write(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def test_krl_with_all_kinds_of_sections_is_read(file: Path) -> None:
    keys = [asyncssh.generate_private_key(kind) for kind in ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")]
    authority = asyncssh.generate_private_key("ssh-ed25519")
    texts = [key.export_public_key().decode().strip() for key in keys]
    rules = f"serial: 1-10\nserial: 20\nid: gpubox\nkey: {texts[0]}\nsha1: {texts[1]}\nsha256: {texts[2]}\n"
    _make_krl(file, rules, authority)
    revoked = RevokedKeys.read([str(file)])
    assert revoked.problem == "" and all(revoked.has(key) for key in keys)
    assert revoked.distrusts(authority) and not revoked.has(authority)
    _make_krl(file, f"serial: 1-10\nid: gpubox\nkey: {texts[0]}\n", authority)
    assert not RevokedKeys.read([str(file)]).distrusts(keys[0]), "of another authority"
