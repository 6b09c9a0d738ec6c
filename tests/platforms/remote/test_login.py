"""Every way in to a machine, and everything that may be wrong with one: a finding each, with what to do."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asyncssh import public_key

from nni_manager.machines.ledger import Demand
from nni_manager.machines.ssh import login
from nni_manager.machines.ssh.address import Credential, Entry
from nni_manager.machines.ssh.bootstrap import arrive
from nni_manager.machines.ssh.login import log_in, logged_in
from nni_manager.machines.ssh.login_faults import HostLogin
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.remote.preflight import look
from tests.app.foreign_port import free_port
from tests.fake_driver import FakeDriver, OnCard
from tests.platforms.remote.ssh_machines import InProcessMachine

pytestmark = pytest.mark.contract

NOISE = "echo 'Welcome to the machine'\nprintf 'nni-manager-'\necho; echo '{not json'\nPS4=; set -x\n"


async def found(*entries: dict[str, Any]) -> list[PreflightFinding]:
    return await look({Entry.of(entry): Demand(count=0) for entry in entries}, Connections("daemon"))


async def only(entry: dict[str, Any], subject: str, severity: Severity) -> PreflightFinding:
    [finding] = await found(entry)
    assert (finding.subject, finding.severity) == (f"{entry['host']}: {subject}", severity), finding
    assert finding.fix or severity is Severity.FINE
    return finding


async def test_password_login_leaves_nothing(machine: InProcessMachine) -> None:
    await only(machine.entry(), "login", Severity.FINE)
    assert list(machine.home.iterdir()) == []


async def test_a_password_that_is_asked_for_by_a_prompt(machine: InProcessMachine) -> None:
    machine.asks_for_password_by_prompt = True
    await only(machine.entry(), "login", Severity.FINE)


async def test_a_wrong_password_is_tried_once(machine: InProcessMachine) -> None:
    finding = await only(machine.entry(password="wr0ng"), "login", Severity.WRONG)
    assert "password" in finding.fix and "wr0ng" not in str(finding)
    assert machine.refused_logins == 1


async def test_users_key_is_found(machine: InProcessMachine) -> None:
    machine.keys.append(_key(Path(os.environ["HOME"], ".ssh", "id_rsa"), "ssh-rsa"))
    await only(machine.entry(password=None), "login", Severity.FINE)


async def test_a_key_that_is_not_accepted(machine: InProcessMachine, tmp_path: Path) -> None:
    _key(tmp_path / "key")
    finding = await only(machine.entry(password=None, sshKeyFile=str(tmp_path / "key")), "login", Severity.WRONG)
    assert "authorized_keys" in finding.fix


@pytest.mark.parametrize(("passphrase", "words"), [(None, "set `sshPassphrase`"), ("an0ther", "correct it")])
async def test_a_locked_key(machine: InProcessMachine, tmp_path: Path, passphrase: str | None, words: str) -> None:
    machine.keys.append(_key(tmp_path / "key", passphrase="0pen"))
    entry = machine.entry(password=None, sshKeyFile=str(tmp_path / "key"), sshPassphrase=passphrase)
    assert words in (await only(entry, "login", Severity.WRONG)).fix
    await only({**entry, "sshPassphrase": "0pen"}, "login", Severity.FINE)


async def test_slow_key_unlock_is_not_server_silence(
    machine: InProcessMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, order = str(tmp_path / "key"), list[str]()
    read_file, in_time = public_key.read_file, login._in_time

    def read_noted(path: Any, *how: Any) -> Any:
        if path == key:
            order.append("key")
        return read_file(path, *how)

    def limited(host: HostLogin) -> Any:
        order.append("limit")
        return in_time(host)

    machine.keys.append(_key(tmp_path / "key"))
    monkeypatch.setattr(public_key, "read_file", read_noted)
    monkeypatch.setattr(login, "_in_time", limited)
    await only(machine.entry(password=None, sshKeyFile=key), "login", Severity.FINE)
    assert order[:1] == ["key"] and order[-1:] == ["limit"] and order.count("limit") == 1


async def test_an_unknown_host_key_is_shown_and_can_be_accepted(machine: InProcessMachine) -> None:
    finding = await only(machine.entry(hostKey=None), "host key", Severity.WRONG)
    assert "run `nnictl platform trust --config FILE` with" in finding.fix
    assert f"`hostKey: {machine.fingerprint}`" in finding.fix and "`hostKey: accept-new`" in finding.fix
    assert machine.refused_logins == 0, "no password is sent to an unknown host"
    _know(machine, machine.host_key)
    await only(machine.entry(hostKey=None), "login", Severity.FINE)
    text = machine.host_key.export_public_key().decode().strip()
    await only(machine.entry(hostKey=text), "login", Severity.FINE)


async def test_a_new_host_key_is_taken_once_and_no_other_after_it(machine: InProcessMachine) -> None:
    await only(machine.entry(hostKey="accept-new"), "login", Severity.FINE)
    await only(machine.entry(hostKey=None), "login", Severity.FINE)
    text, mode = _known_hosts()
    assert [line.split()[0] for line in text.splitlines()] == [f"[127.0.0.1]:{machine.port}"]
    assert mode == 0o600
    await machine.stop()
    machine.host_key = asyncssh.generate_private_key("ssh-ed25519")
    await machine.start()
    finding = await only(machine.entry(hostKey="accept-new"), "host key", Severity.WRONG)
    assert "has changed" in finding.sentence and machine.refused_logins == 0


@pytest.mark.parametrize("option", ["UserKnownHostsFile", "GlobalKnownHostsFile"])
async def test_changed_host_key_in_files_of_ssh_config(machine: InProcessMachine, tmp_path: Path, option: str) -> None:
    """`hostKey: accept-new` refuses what `ssh` refuses: each file that it would ask counts."""
    other = asyncssh.generate_private_key("ssh-ed25519")
    (tmp_path / "known").write_text(f"[127.0.0.1]:{machine.port} {other.export_public_key().decode()}")
    _write_config(f"Host 127.0.0.1\n  {option} {tmp_path}/absent {tmp_path}/known\n")
    finding = await only(machine.entry(hostKey="accept-new"), "host key", Severity.WRONG)
    assert "has changed" in finding.sentence and machine.refused_logins == 0


async def test_known_host_key_in_files_of_ssh_config(machine: InProcessMachine, tmp_path: Path) -> None:
    line = f"[127.0.0.1]:{machine.port} {machine.host_key.export_public_key().decode()}"
    (tmp_path / "known").write_text(line)
    _write_config(f"Host 127.0.0.1\n  UserKnownHostsFile none\n  GlobalKnownHostsFile {tmp_path}/known\n")
    await only(machine.entry(hostKey=None), "login", Severity.FINE)


async def test_missing_known_hosts_file_accepts_no_key(machine: InProcessMachine) -> None:
    _write_config("Host 127.0.0.1\n  UserKnownHostsFile none\n")
    finding = await only(machine.entry(hostKey=None), "host key", Severity.WRONG)
    assert "is not known" in finding.sentence


async def test_new_host_key_is_written_where_ssh_writes_it(machine: InProcessMachine, tmp_path: Path) -> None:
    _write_config(f"Host 127.0.0.1\n  UserKnownHostsFile {tmp_path}/%h/known ~/.ssh/known_hosts\n")
    await only(machine.entry(hostKey="accept-new"), "login", Severity.FINE)
    assert f"[127.0.0.1]:{machine.port}" in (tmp_path / "127.0.0.1" / "known").read_text()


@pytest.mark.parametrize("place", ["*", "127.0.0.1", "[127.0.0.1]:22022"])
@pytest.mark.parametrize("wanted", ["accept-new", "fingerprint", None])
async def test_revoked_host_key_is_revoked_on_every_port(
    machine: InProcessMachine, place: str, wanted: str | None
) -> None:
    key = machine.host_key.export_public_key().decode()
    place = place.replace("22022", str(machine.port))
    _write_known_hosts(f"@revoked {place} {key}")
    wanted = machine.fingerprint if wanted == "fingerprint" else wanted
    finding = await only(machine.entry(hostKey=wanted), "host key", Severity.WRONG)
    assert "is revoked" in finding.sentence and machine.refused_logins == 0


async def test_host_key_of_an_alias(machine: InProcessMachine) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519")
    _write_known_hosts(f"gpubox {other.export_public_key().decode()}")
    _write_config("Host 127.0.0.1\n  HostKeyAlias gpubox\n")
    finding = await only(machine.entry(hostKey="accept-new"), "host key", Severity.WRONG)
    assert "has changed" in finding.sentence


async def test_a_new_host_key_that_cannot_be_remembered(machine: InProcessMachine) -> None:
    os.mkdir(f"{os.environ['HOME']}/.ssh/known_hosts")
    finding = await only(machine.entry(hostKey="accept-new"), "host key", Severity.WRONG)
    assert "cannot be stored" in finding.sentence


async def test_a_host_key_that_has_changed(machine: InProcessMachine) -> None:
    _know(machine, asyncssh.generate_private_key("ssh-ed25519"))
    assert "ssh-keygen -R" in (await only(machine.entry(hostKey=None), "host key", Severity.WRONG)).fix
    other = asyncssh.generate_private_key("ssh-ed25519").get_fingerprint()
    assert "the connection is intercepted" in (await only(machine.entry(hostKey=other), "host key", Severity.WRONG)).fix


async def test_addresses_and_ports(machine: InProcessMachine) -> None:
    await only(machine.entry(port=free_port()), "port", Severity.AWAY)
    await only(machine.entry(host="no-such-machine.invalid"), "address", Severity.WRONG)


async def test_a_jump_host_with_a_key_of_its_own(machine: InProcessMachine, tmp_path: Path) -> None:
    jump = InProcessMachine(tmp_path / "jump")
    await jump.start()
    _know(jump, jump.host_key)
    jump.keys.append(_key(Path(os.environ["HOME"], ".ssh", "id_ed25519")))
    via = f"{jump.user}@127.0.0.1:{jump.port}"
    await only(machine.entry(proxyJump=via), "login", Severity.FINE)
    assert (jump.logins, machine.logins) == (1, 1)
    await only(
        machine.entry(proxyJump=f"nobody@127.0.0.1:{jump.port}"),
        f"jump host nobody@127.0.0.1:{jump.port}",
        Severity.WRONG,
    )
    await jump.stop()


async def test_the_users_ssh_config_is_followed(machine: InProcessMachine) -> None:
    _write_config(f"Host bench\n  HostName 127.0.0.1\n  Port {machine.port}\n")
    await only(machine.entry(host="bench", port=22), "login", Severity.FINE)


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash", "fish", "csh"])
async def test_login_shells_and_noise(machine: InProcessMachine, tmp_path: Path, shell: str) -> None:
    found_shell = shutil.which(shell)
    assert found_shell is not None, f"{shell} is one of .ci/debian-packages"
    noisy = tmp_path / "noisy"
    noisy.write_text(f'#!/bin/sh\n{NOISE}exec {found_shell} "$@"\n')
    noisy.chmod(0o755)
    machine.shell = str(noisy)
    await only(machine.entry(), "login", Severity.FINE)


@pytest.mark.parametrize("version", ["2.7", "3.6", ""])
async def test_missing_python(machine: InProcessMachine, tmp_path: Path, version: str) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for tool in ("sh", "cat"):
        (bin_folder / tool).symlink_to(shutil.which(tool) or "")
    if version:
        major, minor = version.split(".")
        (bin_folder / "python3").write_text(f'#!/bin/sh\necho "$4({major}, {minor})"; cat\n')
        (bin_folder / "python3").chmod(0o755)
    machine.environment["PATH"] = str(bin_folder)
    finding = await only(machine.entry(), "python", Severity.WRONG)
    assert "pythonPath" in finding.fix and version in finding.sentence
    await only(machine.entry(pythonPath=str(Path(sys.executable).parent)), "login", Severity.FINE)


async def test_non_text_variable_is_omitted(machine: InProcessMachine) -> None:
    """One line of a start-up file in another encoding, and the machine was of no use."""
    machine.environment.update({"NAME": os.fsdecode("Jérôme".encode("latin-1")), "CITY": "Köln"})
    entry = Entry.of(machine.entry())
    async with logged_in(entry) as connection:
        _, greeting = await arrive(connection, folder=f"daemon/{entry.address.folder}", look=True)
    assert "NAME" not in greeting.environment and greeting.environment["CITY"] == "Köln"


async def test_a_home_that_cannot_be_written(machine: InProcessMachine) -> None:
    machine.environment["HOME"] = "/proc/self"
    await only(machine.entry(), "write permission", Severity.WRONG)


async def test_an_account_without_a_shell(machine: InProcessMachine, tmp_path: Path) -> None:
    closed = tmp_path / "nologin"
    closed.write_text("#!/bin/sh\necho 'This account is not available.'\nexit 1\n")
    closed.chmod(0o755)
    machine.shell = str(closed)
    assert "This account is not available" in (await only(machine.entry(), "session", Severity.AWAY)).sentence


async def test_windows_is_refused_in_a_sentence(machine: InProcessMachine) -> None:
    await machine.stop()
    machine.server = "OpenSSH_for_Windows_9.5"
    await machine.start()
    finding = await only(machine.entry(), "system", Severity.WRONG)
    assert "it runs Windows" in finding.sentence and "WSL" in finding.fix


async def test_gpus_are_read_if_trials_need_them(
    machine: InProcessMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = FakeDriver(tmp_path / "driver", 2)
    driver.show({0: [OnCard(os.getpid())]})
    machine.environment.update(driver.environment)
    entry = Entry.of(machine.entry())
    login, gpus = await look({entry: Demand(count=1)}, Connections("daemon"))
    assert (login.severity, gpus.severity, gpus.subject) == (Severity.FINE, Severity.FINE, "GPUs of 127.0.0.1")
    assert gpus.sentence == "2 read by nvidia-smi, 1 free for these trials now"
    _, many = await look({entry: Demand(count=3)}, Connections("daemon"))
    assert many.severity is Severity.WRONG and "127.0.0.1 has 2 GPUs, and a trial needs 3" in many.sentence
    driver.hang()
    monkeypatch.setattr("nni_manager.machines.ssh.bootstrap._GPUS_S", 1)
    _, hanging = await look({entry: Demand(count=1)}, Connections("daemon"))
    assert hanging.severity is Severity.AWAY and "the driver has not answered for 1 s" in hanging.sentence
    driver.remove_program()
    _, absent = await look({entry: Demand(count=1)}, Connections("daemon"))
    assert absent.severity is Severity.WRONG and "install NVIDIA's driver" in absent.fix
    assert list(machine.home.iterdir()) == []


async def test_the_folder_of_another_manager_is_wrong(machine: InProcessMachine) -> None:
    """As a submission would be told, which has no other way to the machine."""
    entry = Entry.of(machine.entry())
    there = {"host": "there", "machine": "a1", "directory": "/data", "inode": 7, "claimed_ms": 0, "run": "x"}
    folder = machine.home / ".nni-manager" / "daemon" / entry.address.folder
    folder.mkdir(parents=True, mode=0o700)
    (folder / "manager.json").write_text(json.dumps(there))
    ours = Connections("daemon", lambda: {**there, "host": "here", "machine": "b2", "run": ""})
    [finding] = await look({entry: Demand(count=0)}, ours)
    assert (finding.severity, finding.subject) == (Severity.WRONG, "127.0.0.1: manager")
    assert finding.sentence == "its folder daemon belongs to the manager of /data on there, not of /data on here"
    assert "`nni-manager identity --moved`" in finding.fix and "`nni-manager identity --own`" in finding.fix
    [finding] = await look({entry: Demand(count=0)}, Connections("daemon", lambda: {**there, "run": ""}))
    assert finding.severity is Severity.FINE
    assert json.loads((folder / "manager.json").read_text()) == there, "nothing is changed by a look"


async def test_fault_of_a_single_machine_is_a_warning(machine: InProcessMachine) -> None:
    findings = await found(machine.entry(port=free_port()), machine.entry())
    assert [finding.severity for finding in findings] == [Severity.WARNING, Severity.FINE]
    assert "gets no trials" in findings[0].sentence


def test_no_secret_is_shown() -> None:
    credential = Credential(password="p4ss", passphrase="phr4se")
    assert "p4ss" not in repr(credential) and "phr4se" not in repr(credential)
    assert Credential.parse(credential.as_text()) == credential


def _key(path: Path, kind: str = "ssh-ed25519", passphrase: str | None = None) -> asyncssh.SSHKey:
    key = asyncssh.generate_private_key(kind)
    if passphrase is None:
        key.write_private_key(str(path))
    else:
        key.write_private_key(str(path), passphrase=passphrase, rounds=50)
    path.chmod(0o600)
    return key.convert_to_public()


def _write_config(text: str) -> None:
    Path(os.environ["HOME"], ".ssh", "config").write_text(text)


def _known_hosts() -> tuple[str, int]:
    """Text and mode."""
    path = Path(os.environ["HOME"], ".ssh", "known_hosts")
    return path.read_text(), path.stat().st_mode & 0o777


def _write_known_hosts(text: str) -> None:
    Path(os.environ["HOME"], ".ssh", "known_hosts").write_text(text)


def _know(machine: InProcessMachine, key: asyncssh.SSHKey) -> None:
    line = f"[127.0.0.1]:{machine.port} {key.export_public_key().decode()}"
    with Path(os.environ["HOME"], ".ssh", "known_hosts").open("a") as file:
        file.write(line)


@pytest.mark.parametrize("turns", range(6))
async def test_a_login_that_is_cancelled_in_its_last_moment_ends(
    machine: InProcessMachine, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """Some turns of the loop after the login: cancelling it waits for its end."""
    entry = Entry.of(machine.entry())
    task = asyncio.create_task(log_in(entry.address, entry.credential))
    loop = asyncio.get_running_loop()
    was_cancelled = loop.create_future()

    def cancel_after(left: int) -> None:
        if left:
            loop.call_soon(cancel_after, left - 1)
        else:
            was_cancelled.set_result(task.cancel())

    monkeypatch.setattr("nni_manager.machines.ssh.login._Client.auth_completed", lambda _: cancel_after(turns))
    await asyncio.wait([task])
    if await was_cancelled:
        assert task.cancelled()
    else:
        task.result().abort()
