"""Processes that a tuner left behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nni_manager.scheduler.tuning import orphans

pytestmark = pytest.mark.acceptance


def sleeper(mark: str, command: str = "exec sleep 1000") -> subprocess.Popen[bytes]:
    """In a session of its own, with a mark."""
    environment = {"PATH": os.environ["PATH"], orphans.MARK_VARIABLE: mark}
    process = subprocess.Popen(
        ["sh", "-c", f"echo; {command}"], env=environment, start_new_session=True, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


def test_orphans_of_one_tuner_or_of_the_experiment_are_killed(tmp_path: Path) -> None:
    first, second = orphans.new_mark(tmp_path), orphans.new_mark(tmp_path)
    others = orphans.new_mark(tmp_path.with_name(f"{tmp_path.name}2"))
    earlier, later, foreign = sleeper(first), sleeper(second), sleeper(others)
    try:
        assert orphans.end_orphans(first) == 1
        assert earlier.wait(20) == -9 and later.poll() is None
        assert orphans.end_orphans(orphans.mark_prefix(tmp_path)) == 1
        assert later.wait(20) == -9 and foreign.poll() is None
        assert orphans.end_orphans(orphans.mark_prefix(tmp_path)) == 0
    finally:
        for process in (earlier, later, foreign):
            process.kill()
            process.wait()
