"""Documented examples run verbatim, with their own network and mounts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.machines
@pytest.mark.acceptance
@pytest.mark.timeout(120)
@pytest.mark.parametrize("platform", ["openpai", "dlc"])
def test_documented_example_runs(tmp_path: Path, platform: str) -> None:
    example = f"tests.acceptance.{platform}_seed"
    command = ["unshare", "--net", "--mount", sys.executable, "-m", example, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert (ended.returncode, ended.stdout.strip().endswith("done")) == (0, True), ended.stdout + ended.stderr
