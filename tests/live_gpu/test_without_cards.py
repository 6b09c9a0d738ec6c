"""The cases for real cards with a fake driver, which keeps them working and shows that they can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_driver import FakeDriver
from tests.live_gpu.journal import Journal

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

_HERE = Path(__file__).parent


@pytest.mark.thorough
def test_cases_pass_on_correct_cards(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path / "driver", 2, has_library=True)
    library = tmp_path / "driver" / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O0", "-w", "-o", library, _HERE / "fake_cuda.c"], check=True)
    chosen = "whole or zero or nvidia_smi_agree or two_ways"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--live-gpu",
        "-m",
        "live_gpu",
        "-k",
        chosen,
        "-p",
        "no:cacheprovider",
    ]
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    run = subprocess.run(
        [*command, "--basetemp", str(tmp_path / "inner"), str(_HERE)],
        env={**outer, **driver.environment},
        cwd=_HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-4000:]
    assert "5 passed" in run.stdout


def test_journal_counts_concurrent_trials_on_a_card(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    events = [("holds", 1, 0.0), ("holds", 2, 1.0), ("leaves", 1, 2.0), ("holds", 3, 2.0), ("leaves", 3, 3.0)]
    text = '{{"event": "{}", "pid": {}, "at_s": {}, "cards": ["a"], "trial": "", "visible": "0"}}\n'
    path.write_text("".join(text.format(*event) for event in events))
    assert Journal(path).most_on_a_card() == {"a": 2}
