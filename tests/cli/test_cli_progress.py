"""Progress as numbers and as one line."""

from __future__ import annotations

import pytest
from fake_manager import state

from nni_manager.programs.progress import line, read, tenth

pytestmark = pytest.mark.unit

BEST = {"trialId": "ab1cd", "value": 0.93124567, "parameters": {}}
HALF = state(counts={"SUCCEEDED": 3, "FAILED": 1, "SYS_CANCELED": 1, "RUNNING": 1, "UNKNOWN": 1, "WAITING": 1})


@pytest.mark.parametrize(
    ("fields", "since_s", "expected"),
    [
        ({}, 0, "0/10 done, 0 running, 0 failed; 1 min 0 s"),
        ({"counts": HALF["counts"]}, 0, "5/10 done, 2 running, 2 failed; 1 min 0 s, about 1 min 0 s left"),
        (
            {"counts": {"EARLY_STOPPED": 1, "USER_CANCELED": 1, "SUCCEEDED": 3}},
            60,
            "5/10 done, 0 running, 0 failed; 2 min 0 s, about 2 min 0 s left",
        ),
        (
            {"counts": {"SUCCEEDED": 5}, "best": BEST},
            0,
            "5/10 done, 0 running, 0 failed; best 0.931246 (trial ab1cd); 1 min 0 s, about 1 min 0 s left",
        ),
        ({"maxTrialNumber": None, "counts": {"SUCCEEDED": 5}}, 0, "5 trials done, 0 running, 0 failed; 1 min 0 s"),
        (
            {"maxTrialNumber": None, "maxExperimentDuration": "2m"},
            15,
            "0 trials done, 0 running, 0 failed; 1 min 15 s, about 45 s left",
        ),
        (
            {"maxExperimentDuration": 90, "counts": {"SUCCEEDED": 1}},
            0,
            "1/10 done, 0 running, 0 failed; 1 min 0 s, about 30 s left",
        ),
        ({"maxExperimentDuration": 30}, 0, "0/10 done, 0 running, 0 failed; 1 min 0 s, about 0.0 s left"),
        ({"status": "DONE", "counts": {"SUCCEEDED": 10}}, 3600, "10/10 done, 0 running, 0 failed; 1 min 0 s"),
        ({"execDurationMs": 93_784_000}, 0, "0/10 done, 0 running, 0 failed; 1 d 2 h"),
    ],
)
def test_line(fields: dict, since_s: float, expected: str) -> None:
    assert line(read(state(**fields), since_s=since_s)) == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (200, "5/10 done, 0 running, 0 failed; best 0.931246 (trial ab1cd); 1 min 0 s, about 1 min 0 s left"),
        (60, "5/10 done, 0 running, 0 failed; best 0.931246 (trial ab1cd)"),
        (40, "5/10 done, 0 running, 0 failed"),
        (10, "5/10 done…"),
    ],
)
def test_line_fits_into_the_terminal(columns: int, expected: str) -> None:
    now = read(state(counts={"SUCCEEDED": 5}, best=BEST))
    assert line(now, columns) == expected
    assert len(expected) <= columns


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"counts": {}}, 0),
        ({"counts": {"SUCCEEDED": 3}}, 3),
        ({"counts": {"SUCCEEDED": 7}, "maxTrialNumber": 100}, 0),
        ({"counts": {"SUCCEEDED": 29}, "maxTrialNumber": 100}, 2),
        ({"counts": {"SUCCEEDED": 12}, "maxTrialNumber": 10}, 10),
        ({"counts": {"SUCCEEDED": 1}, "maxExperimentDuration": "100s"}, 6),
        ({"counts": {"SUCCEEDED": 39}, "maxTrialNumber": None}, 3),
    ],
)
def test_step_counts_tenths(fields: dict, expected: int) -> None:
    assert tenth(read(state(**fields))) == expected
