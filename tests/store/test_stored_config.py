"""The config fields that the store reads, in our configs and in NNI's."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from nni_manager.store.stored_config import MINIMIZE_BY_DEFAULT, maximizes, platform
from nni_manager.tuners.optuna_tpe import TPE

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"tuner": {"name": "TPE"}}, False),
        ({"tuner": {"name": "TPE", "classArgs": {"seed": 1}}}, False),
        ({"tuner": {"name": "TPE", "classArgs": {"optimize_mode": "maximize"}}}, True),
        ({"tuner": {"name": "Random"}}, True),
        ({"tuner": {"name": "Random", "classArgs": {"optimize_mode": "minimize"}}}, False),
        ({"tuner": {"className": "mine.Mine"}}, True),
        ({"advisor": {"name": "BOHB", "classArgs": {"optimize_mode": "minimize"}}}, False),
        ({"advisor": {"name": "BOHB"}}, True),
    ],
)
def test_optimize_mode(config: dict[str, Any], expected: bool) -> None:
    assert maximizes(config) is expected


def test_the_default_is_the_tuner_s_own() -> None:
    assert inspect.signature(TPE).parameters["optimize_mode"].default == "minimize" and "TPE" in MINIMIZE_BY_DEFAULT


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"trainingService": {"platform": "local"}}, "local"),
        ({"trainingService": [{"platform": "local"}, {"platform": "remote"}]}, "local,remote"),
        ({"trainingServicePlatform": "local"}, "local"),
        ({}, ""),
    ],
)
def test_the_platform_in_either_dialect(config: dict[str, Any], expected: str) -> None:
    assert platform(config) == expected
