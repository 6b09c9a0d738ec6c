"""A third party's adapter passes the platform contract with only installed packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_hive_contract import TestHive as HiveContract
from test_hive_contract import hive

pytestmark = [pytest.mark.contract, pytest.mark.group("hive")]

__all__ = ["hive"]  # a fixture of all tests here

_PACKAGE = Path(__file__).parent / "nni-hive"
_SOME = "test_a_cancelled_job_ends or test_failed_job_has_exit_code_and_reason"


@pytest.mark.thorough
@pytest.mark.usefixtures("found_here")
class TestHive(HiveContract):
    pass


@pytest.mark.thorough
def test_suite_of_the_package_runs_outside_the_repository(tmp_path: Path, installed: Path) -> None:
    """The suite must not import `tests.platforms`, which is not part of a package."""
    shutil.copytree(_PACKAGE, tmp_path / "nni-hive")
    (tmp_path / "tests.py").write_text("raise ImportError('no package has our tests')\n")
    path = os.pathsep.join([str(tmp_path), str(installed)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "tests", "-k", _SOME]
    ended = subprocess.run(
        command, cwd=tmp_path / "nni-hive", env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert ended.returncode == 0 and "2 passed" in ended.stdout, ended.stdout + ended.stderr
