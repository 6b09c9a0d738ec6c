"""Trial code on the real `nni` package."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import nni3
from tests.upstream.warm_python import WarmPython, warm_python
from trial_runner import protocol

STAND_IN = nni3.ROOT / "trial_runner" / "stand_in"


@pytest.fixture(scope="session", name="nni3")
def nni3_interpreter() -> Path:
    """The interpreter of an environment with nni 3.0. Needs PyPI the first time, else it fails."""
    return nni3.interpreter()


@pytest.fixture(scope="session")
def warm_nni3(nni3: Path) -> Iterator[WarmPython]:
    """The same with the dependencies of `nni` already imported; one for all tests of a worker."""
    with warm_python(nni3) as warm:
        yield warm


class UpstreamTrial:
    """Runs trial code on the real nni in an attempt's folder with the manager's layout, but without a manager."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self._python = python
        self.environment = {
            **{name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ},
            "PYTHONPATH": str(STAND_IN),
            protocol.ENV_PLATFORM: "local",
            protocol.ENV_EXPERIMENT_ID: "exp1",
            protocol.ENV_TRIAL_ID: "abcde",
            protocol.ENV_SEQUENCE_ID: "3",
            protocol.ENV_SYSTEM_DIR: str(folder),
            protocol.ENV_OUTPUT_DIR: str(folder),
            protocol.ENV_CODE_DIR: str(folder),
            protocol.ENV_OUTBOX: str(folder / protocol.MAIN_OUTBOX),
            protocol.ENV_COMMAND_CHANNEL: protocol.COMMAND_CHANNEL,
        }
        (folder / protocol.OUTBOX_FOLDER).mkdir()
        self.give({"lr": 0.1})

    def give(self, parameters: object) -> None:
        """Sets the trial's parameters."""
        record = {"parameter_id": 3, "parameter_source": "algorithm", "parameters": parameters, "parameter_index": 0}
        (self.folder / protocol.PARAMETER_FILE).write_text(json.dumps(record))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments; fails the test if it fails."""
        command = [str(self._python), *arguments]
        done = subprocess.run(command, env=self.environment, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    def outboxes(self) -> list[list[str]]:
        """Lines of each outbox."""
        files = (self.folder / protocol.OUTBOX_FOLDER).iterdir()
        return [file.read_text().splitlines() for file in files]


@pytest.fixture
def upstream_trial(tmp_path: Path, warm_nni3: WarmPython) -> UpstreamTrial:
    return UpstreamTrial(tmp_path, warm_nni3.python)
