"""`nnictl trial download` copies the files of a local trial, and of one on an SSH machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live_daemon import Daemon
from tests.platforms.remote.ssh_machines import RealMachine

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

_COMMAND = """
mkdir -p "$NNI_OUTPUT_DIR/model" && head -c 3000000 /dev/zero > "$NNI_OUTPUT_DIR/model/weights" && echo seen
echo 7 > "$NNI_CHECKPOINT_DIR/epoch"
echo '{"type": "final", "value": 1}' >> "$NNI_OUTBOX"
"""


def test_files_and_checkpoint_of_a_local_trial_are_downloaded(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    id_, trial = _ended_trial(daemon, code, {"platform": "local"})
    target = tmp_path / "brought"
    said = _download(daemon, id_, "-T", trial, "-o", str(target))
    assert f" to {target}." in said.stdout and said.returncode == 0
    assert (target / "stdout").read_text() == "seen\n"
    assert (target / "model" / "weights").read_bytes() == bytes(3_000_000)
    assert (target / "checkpoint" / "epoch").read_text() == "7\n"


def test_files_of_a_remote_trial_are_downloaded(
    daemon: Daemon, machine: RealMachine, code: Path, tmp_path: Path
) -> None:
    id_, trial = _ended_trial(
        daemon, code, {"platform": "remote", "machineList": [machine.entry()]}, maxTrialNumber=2, stays=True
    )
    target = tmp_path / "brought"
    said = _download(daemon, id_, "-T", trial, "-o", str(target))
    assert said.returncode == 0, said.stderr
    assert (target / "stdout").read_text() == "seen\n"
    assert (target / "model" / "weights").read_bytes() == bytes(3_000_000)


def _ended_trial(
    daemon: Daemon, code: Path, service: dict[str, Any], *, stays: bool = False, **fields: Any
) -> tuple[str, str]:
    """Experiment and trial; `stays`: the experiment continues, so its machines stay connected."""
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"{_COMMAND}\n[ $NNI_TRIAL_SEQ_ID = 0 ] || sleep 1000" if stays else _COMMAND,
        "trialCodeDirectory": ".",
        "trialConcurrency": 1,
        "maxTrialNumber": 1,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": service,
        **fields,
    }
    id_ = daemon.create(config, code)
    daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED") == 1)
    return id_, daemon.trials(id_)[0]["id"]


def _download(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nni_manager", "trial", "download", "--data-dir", str(daemon.data), *words]
    return subprocess.run(command, capture_output=True, text=True, env=daemon.environment, check=False)
