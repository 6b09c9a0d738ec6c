"""`nni-manager doctor` on this machine as a separate process; it leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nni_manager.config.settings import TEMPORARY
from tests.acceptance.command_line import RUN_ON, CommandLine, command_line, state_of
from tests.live_daemon import processes_of
from tests.waiting import until

pytestmark = [pytest.mark.acceptance]


@pytest.fixture
def line(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        yield line


def examined(line: CommandLine, *words: object) -> tuple[int, dict[str, Any]]:
    """Exit code, and findings by subject; the last of several."""
    done = line.run("doctor", "--json", *words, program="nni-manager")
    assert done.stderr == "", done.stderr
    return done.returncode, {finding["check"]: finding for finding in json.loads(done.stdout)}


def test_fresh_machine_passes_and_is_unchanged(line: CommandLine) -> None:
    folders = set(TEMPORARY.glob("nni-doctor-*"))
    code, found = examined(line, "--config", line.config())
    assert code == 0, found
    assert found["keeper"]["verdict"] == "OK" and "processors" in found["keeper"]["sentence"]
    assert found["tuner"]["verdict"] == found["assessor"]["verdict"] == found["platform"]["verdict"] == "OK"
    assert not line.data.exists() and line.traces() == []
    # Other tests run `doctor` at the same time: their folders are removed, too.
    until(lambda: set(TEMPORARY.glob("nni-doctor-*")) <= folders)
    until(lambda: processes_of("nni-doctor-") == [])


def test_running_and_killed_daemons_are_reported(
    line: CommandLine,
) -> None:
    served = line.serve("--host", "127.0.0.1", "--port", "0")
    id_ = line.create(trialCommand=RUN_ON, maxTrialNumber=1)
    state_of(served, id_, RUNNING=1)
    before = sorted(line.processes())
    done = line.run("doctor", program="nni-manager")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1].startswith("All "), done.stdout
    assert all(each.startswith(("OK  ", "WARN")) for each in lines[:-1])
    assert any("TPE starts in" in each for each in lines)
    (daemon,) = (each for each in lines if each.split()[1] == "daemon")
    assert served.process is not None and f"process {served.process.pid} runs version" in daemon
    assert sorted(line.processes()) == before and served.status(id_)["status"] == "NO_MORE_TRIAL"
    keeper = served.keeper_pid()
    served.kill()
    code, found = examined(line)
    assert code == 0, found
    assert found["daemon"]["verdict"] == "WARN" and "start it again" in found["daemon"]["advice"]
    assert found["trials"]["verdict"] == "WARN" and str(keeper) in found["trials"]["sentence"]
    assert psutil.pid_exists(keeper)


def test_unusable_data_directory_and_config_fail(line: CommandLine) -> None:
    line.data.write_text("a file")
    code, found = examined(line, "--config", line.config(trainingService={"platform": "nowhere"}))
    assert code == 1 and found["data directory"]["verdict"] == "FAIL"
    assert found["config"]["verdict"] == "FAIL" and "nowhere" in found["config"]["sentence"]
