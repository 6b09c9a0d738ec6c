"""`nnictl platform trust`: host keys of machines are shown, and written after a yes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import yaml
from click.testing import CliRunner, Result

from nni_manager.cli.main import nnictl
from tests.platforms.remote.ssh_machines import InProcessMachine

pytestmark = pytest.mark.contract


async def trust(folder: Path, entry: dict[str, Any], *words: str, answers: str = "") -> Result:
    (folder / "trial.py").touch()
    config = {
        "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
        "trialCommand": "python3 trial.py",
        "trialConcurrency": 1,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "remote", "machineList": [entry]},
    }
    file = folder / "experiment.yml"
    file.write_text(yaml.safe_dump(config))
    line = ["platform", "trust", "--config", str(file), "--data-dir", str(folder / "data"), *words]
    return await asyncio.to_thread(CliRunner().invoke, nnictl, line, input=answers)


def known_hosts() -> str:
    file = Path(os.environ["HOME"], ".ssh", "known_hosts")
    return file.read_text() if file.exists() else ""


def know(text: str) -> None:
    Path(os.environ["HOME"], ".ssh", "known_hosts").write_text(text)


def line_of(machine: InProcessMachine) -> str:
    key = " ".join(machine.host_key.export_public_key().decode().split()[:2])
    return f"[127.0.0.1]:{machine.port} {key}\n"


def unpinned(machine: InProcessMachine, **fields: Any) -> dict[str, Any]:
    return {name: value for name, value in machine.entry(**fields).items() if name != "hostKey"}


async def test_a_key_is_written_after_a_yes(machine: InProcessMachine, tmp_path: Path) -> None:
    know("elsewhere ssh-ed25519 AAAA")
    result = await trust(tmp_path, unpinned(machine), answers="y\n")
    assert result.exit_code == 0, result.output
    assert f"[127.0.0.1]:{machine.port} shows ssh-ed25519 {machine.fingerprint}\n" in result.stdout
    assert known_hosts() == "elsewhere ssh-ed25519 AAAA\n" + line_of(machine)
    again = await trust(tmp_path, unpinned(machine))
    assert again.stdout == "127.0.0.1: its host key is known\n" and known_hosts().count("\n") == 2


@pytest.mark.parametrize("answers", ["n\n", "\n", ""])
async def test_no_key_is_written_without_confirmation(machine: InProcessMachine, tmp_path: Path, answers: str) -> None:
    for fields in ({}, {"hostKey": "accept-new"}):
        result = await trust(tmp_path, {**unpinned(machine), **fields}, answers=answers)
        assert result.exit_code != 0 and known_hosts() == "" and machine.refused_logins == 0


async def test_scripts_name_the_fingerprints(machine: InProcessMachine, tmp_path: Path) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").get_fingerprint()
    refused = await trust(tmp_path, unpinned(machine), "--yes-these", other)
    assert refused.exit_code == 1 and known_hosts() == ""
    assert f"127.0.0.1: not trusted: [127.0.0.1]:{machine.port} {machine.fingerprint}" in refused.output
    result = await trust(tmp_path, unpinned(machine), "--yes-these", other, "--yes-these", machine.fingerprint)
    assert result.exit_code == 0 and known_hosts() == line_of(machine)


async def test_a_key_that_has_changed_is_never_written(machine: InProcessMachine, tmp_path: Path) -> None:
    await trust(tmp_path, unpinned(machine), "--yes-these", machine.fingerprint)
    before = known_hosts()
    await machine.stop()
    machine.host_key = asyncssh.generate_private_key("ssh-ed25519")
    await machine.start()
    result = await trust(tmp_path, unpinned(machine), "--yes-these", machine.fingerprint, answers="y\n")
    assert result.exit_code == 1 and "its key has changed" in result.output and known_hosts() == before
