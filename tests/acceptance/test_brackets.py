"""Hyperband and BOHB with failing trials and a daemon that is killed in a bracket: brackets are as published."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.live_daemon import PYTHON, Daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

HYPERBAND = {"name": "Hyperband", "classArgs": {"optimize_mode": "minimize", "R": 9, "exec_mode": "serial", "seed": 1}}
BOHB = {"name": "BOHB", "classArgs": {"optimize_mode": "minimize", "max_budget": 9, "seed": 1}}


def config(section: str, tuner: dict[str, Any], trials: int) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"{PYTHON} budgeted.py",
        "trialCodeDirectory": ".",
        "trialConcurrency": 4,
        "maxTrialNumber": trials,
        section: tuner,
        "trainingService": {"platform": "local"},
    }


def killed_in_the_first_round(daemon: Daemon, code: Path, fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Trials of an experiment by number; its daemon was killed when five had ended and four ran."""
    gates = code.parent / "gates"
    gates.mkdir()
    id_ = daemon.create(fields, code, {"GATES": str(gates)})
    daemon.wait_for(id_, lambda state: sum(map(state["counts"].get, ("SUCCEEDED", "FAILED"), (0, 0))) == 5)
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 4)
    daemon.kill()
    (gates / "all").touch()
    daemon.start()
    daemon.wait(id_, "DONE", timeout_s=90)
    return sorted(daemon.trials(id_), key=lambda trial: int(trial["sequenceId"]))


def budgets(trials: list[dict[str, Any]]) -> list[float]:
    return [trial["parameters"]["TRIAL_BUDGET"] for trial in trials]


def test_hyperband_brackets_continue_after_restart(daemon: Daemon, code: Path) -> None:
    trials = killed_in_the_first_round(daemon, code, config("advisor", HYPERBAND, 22))
    assert budgets(trials) == [1] * 9 + [3] * 3 + [9] + [3] * 5 + [9] + [9] * 3
    first, promoted = trials[:9], trials[9:12]
    good = sorted(trial["parameters"]["x"] for trial in first if trial["status"] == "SUCCEEDED")
    assert len(good) == 7 and [trial["parameters"]["x"] for trial in promoted] == good[:3]


def test_bohb_brackets_continue_after_restart(daemon: Daemon, code: Path) -> None:
    """BOHB fills the first rounds of all brackets before it starts a new cycle."""
    trials = killed_in_the_first_round(daemon, code, config("tuner", BOHB, 22))
    found = Counter(budgets(trials))
    assert budgets(trials)[:9] == [1] * 9 and found[3] >= 8 and found[9] >= 4
    twice = Counter(trial["parameters"]["x"] for trial in trials)
    good = sorted(trial["parameters"]["x"] for trial in trials[:9] if trial["status"] == "SUCCEEDED")
    told = [(one["sequenceId"], one["status"], one["parameters"], one["attempt"], one["endedMs"]) for one in trials]
    assert all(twice[x] > 1 for x in good[:3]), f"the best three of the first round went on: {told}"
