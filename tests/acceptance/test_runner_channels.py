"""Forty trials under real runners in clean environments, over each channel for results."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.numbered import Numbered
from tests.live_daemon import PYTHON, Daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120), pytest.mark.group("runner_channels")]


@pytest.mark.parametrize(
    ("channel", "used", "trials"),
    [
        pytest.param("push", "push", 40, marks=pytest.mark.thorough),
        ("pull", "pull", 40),
        ("auto", "push", 8),  # like `push` after the choice
    ],
)
def test_many_trials_report_completely_and_leave_nothing(
    shared: Daemon, code: Path, channel: str, used: str, trials: int
) -> None:
    work = Numbered(shared, code, trials=trials, platform={"channel": channel})
    work.wait(100)
    work.check(used)
    _check_that_it_is_clean(work)
    _check_logs(work)
    shared.call("POST", f"/experiments/{work.id}/stop")
    left = shared.data / work.id / "scripted"
    assert sorted(path.name for path in left.iterdir() if path.is_dir() and path.name != "storage") == []


def test_trials_use_shared_storage(shared: Daemon, code: Path) -> None:
    with tempfile.TemporaryDirectory() as storage:
        work = Numbered(shared, code, trials=4, platform={"channel": "pull", "storage": storage})
        work.wait(60)
        work.check("pull")
        folders = {entries[0]["folder"] for entries in work.noted().values()}
        assert folders == {
            str(Path(storage, work.id, trial["id"], "code").resolve()) for trial in shared.trials(work.id)
        }


def test_unreachable_manager_reads_runners_by_exec(shared: Daemon, code: Path) -> None:
    """Runners get a wrong address of the listener."""
    work = Numbered(shared, code, trials=4, platform={"channel": "auto", "nniManagerIp": "127.0.0.2"})
    work.wait(100)
    work.check("pull")


@pytest.mark.parametrize("channel", ["push", "pull"])
def test_channels_have_the_same_line_limit(shared: Daemon, code: Path, channel: str) -> None:
    """All channels accept the same lines, and name the ones that they refuse."""
    (code / "long.py").write_text(
        "import os\nwith open(os.environ['NNI_OUTBOX'], 'a') as file:\n"
        "    for size in (2_900_000, 4_100_000, 5_000_000):\n"
        '        value = \'{"default": %d, "x": "%s"}\' % (size, \'x\' * size)\n'
        '        file.write(\'{"type": "intermediate", "value": %s}\\n\' % value)\n'
    )
    platform = {"platform": "scripted", "launch": "process", "channel": channel, "nniManagerIp": "127.0.0.1"}
    config = {
        "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
        "trialCodeDirectory": ".",
        "trialConcurrency": 1,
        "trialCommand": f"{PYTHON} long.py",
        "maxTrialNumber": 1,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": platform,
    }
    id_ = shared.create(config, code)
    shared.wait(id_, "DONE")
    (trial,) = shared.trials(id_)
    assert (trial["status"], trial["intermediates"], trial["lastValue"]) == ("SUCCEEDED", 2, 4_100_000)
    assert "it is longer than the maximum of 4194304 bytes" in trial["message"]


def _check_that_it_is_clean(work: Numbered) -> None:
    """Check the environment: no variables of the caller, a separate folder per trial, and no visible token."""
    started = [entries[0] for entries in work.noted().values()]
    assert len({entry["folder"] for entry in started}) == work.trials
    own = ("NNI_", "CUDA_")
    allowed = {"PATH", "HOME", "LANG", "LC_CTYPE", "PWD", "SHLVL", "_", "PYTHONPATH"}
    for entry in started:
        names: list[Any] = entry["environment"]
        assert [name for name in names if name not in allowed and not name.startswith(own)] == []
        assert "NNI_TRIAL_TOKEN" not in names and "NNI_MANAGER_URL" not in names


def _check_logs(work: Numbered) -> None:
    log, failed = work.log(), work.trials // 4
    assert log.count("SUCCEEDED") == work.trials - failed
    assert log.count("FAILED (USER_CODE: exit code 3)") == failed
    assert "the platform reports" not in log and "dropped" not in log
