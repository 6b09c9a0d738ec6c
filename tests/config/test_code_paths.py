"""Folders of code in a config whose place changes."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.config import experiment_file

pytestmark = pytest.mark.unit


def config(code: str, section: Any) -> dict[str, Any]:
    return {
        "trialCodeDirectory": code,
        "trialCommand": "/old/run",
        "experimentWorkingDirectory": "/old",
        "tuner": {"className": "a.B", "codeDirectory": f"{code}/tuners", "classArgs": {"codeDirectory": "/old/data"}},
        "assessor": {"name": "Medianstop"},
        "trainingService": section,
    }


@pytest.mark.parametrize("code", ["", "/deep/below"])
def test_folder_inside_the_old_one_moves(code: str) -> None:
    section = [{"platform": "local", "trialCodeDirectory": f"/old{code}"}, {"platform": "other"}]
    moved = [{"platform": "local", "trialCodeDirectory": f"/new/er{code}"}, {"platform": "other"}]
    assert experiment_file.move_code(config(f"/old{code}", section), "/old", "/new/er") == config(
        f"/new/er{code}", moved
    )
    assert (
        experiment_file.move_code(config(f"/old{code}", section[0]), "/old", "/new/er")["trainingService"] == moved[0]
    )


@pytest.mark.parametrize("code", ["/older", "/somewhere/old", "/"])
def test_folder_elsewhere_stays(code: str) -> None:
    before = config(code, {"platform": "local", "trialCodeDirectory": code})
    assert experiment_file.move_code(before, "/old", "/new") == before


def test_null_section_of_nni_stays_null() -> None:
    before = {"trialCodeDirectory": None, "tuner": {"codeDirectory": None}, "assessor": None, "trainingService": None}
    assert experiment_file.move_code(before, "/old", "/new") == before
