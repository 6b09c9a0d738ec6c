"""The suite runs against whatever a config names: here a scripted cluster whose jobs are real."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.contract]

_CONFIG = """
searchSpace: {x: {_type: choice, _value: [1, 2]}}
trialCommand: "true"
trialCodeDirectory: .
trialConcurrency: 1
tuner: {name: Random}
trainingService: {platform: scripted, launch: process, channel: push}
"""
_SOME = "pending_then_running or another_exit_code or sees_its_environment or twice_is_one or a_cancelled"


def test_a_service_that_a_config_names_is_put_through_the_suite(tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_text(_CONFIG)
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", f"--basetemp={tmp_path / 'live'}",
        "tests/platforms/live/test_live.py", "-k", _SOME,
        "--live=scripted", f"--live-config={tmp_path / 'config.yml'}",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^5 passed, \d+ deselected", done.stdout, re.MULTILINE), done.stdout
