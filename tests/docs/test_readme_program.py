"""The Python program of README runs and finds good parameters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.command_line import command_line
from tests.docs import pages


@pytest.mark.acceptance
@pytest.mark.timeout(180)
def test_program_of_the_readme_runs(tmp_path: Path) -> None:
    (program,) = [block.text for block in pages.blocks(pages.ROOT / "README.md") if block.language == "python"]
    command = [sys.executable, "-c", program]
    with command_line(tmp_path) as line:
        done = subprocess.run(command, env=line.environment, cwd=line.folder, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("Best(value=0.9"), done.stdout + done.stderr
