"""What commands say of an experiment with several objectives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from fake_manager import FakeManager, state, trial

from nni_manager.programs import pareto_set, progress, waiting

pytestmark = pytest.mark.unit

Run = Callable[..., Result]

OBJECTIVES = {"accuracy": "maximize", "latency": "minimize"}


def several(count: int, size: int = 0, *, is_feasible: bool = True, **fields: Any) -> dict[str, Any]:
    trials = [
        {
            "trialId": f"trial{number}",
            "values": {"accuracy": 0.5 - number / 10, "latency": 3.0 - number},
            "isFeasible": is_feasible,
            "parameters": {"x": number},
        }
        for number in range(count)
    ]
    counts = {"SUCCEEDED": 10}
    return state("abc", objectives=OBJECTIVES, paretoSet=trials, paretoSize=size or count, counts=counts, **fields)


def test_closing_text() -> None:
    end = waiting.judge(several(2, status="DONE"))
    assert end is not None and end.is_good
    lines = end.text.splitlines()
    assert lines[0] == (
        "Experiment abc is done. Best by accuracy (highest), latency (lowest): a Pareto set of 2 trials"
    )
    assert lines[1].split() == ["TRIAL", "ACCURACY", "LATENCY", "PARAMETERS"]
    assert lines[2].split() == ["trial0", "0.5", "3", '{"x":', "0}"] and len(lines) == 4


def test_closing_text_of_large_set_names_export() -> None:
    end = waiting.judge(several(100, 240, status="DONE"))
    assert end is not None and "and 230 more: `nnictl experiment export abc -f results.csv` has all" in end.text


def test_closing_text_without_feasible_trial() -> None:
    end = waiting.judge(several(1, is_feasible=False, status="DONE"))
    assert end is not None and "1 trial; no trial satisfies the constraints, these violate them least" in end.text


def test_no_best_without_results_of_all_objectives() -> None:
    end = waiting.judge(several(0, status="DONE"))
    assert end is not None and not end.is_good
    assert pareto_set.facts(several(0))["Pareto set"].startswith("no trial has a final result with a finite number")


def test_progress_says_how_large_the_set_is() -> None:
    assert "best: a Pareto set of 3" in progress.line(progress.read(several(3)))
    assert "best" not in progress.line(progress.read(several(0)))
    line = progress.line(progress.read(several(3, is_feasible=False)))
    assert "best: no trial satisfies the constraints yet" in line


def test_list_and_show(nnictl: Run, manager: FakeManager) -> None:
    manager.add(several(3))
    assert "Pareto set of 3" in nnictl("experiment", "list").stdout
    manager.add(several(3, is_feasible=False))
    assert "none feasible" in nnictl("experiment", "list").stdout
    shown = nnictl("experiment", "show").stdout
    assert 'best 2        accuracy 0.4, latency 2 (trial trial1): {"x": 1}' in shown


def test_trials_are_not_ranked_by_one_number(nnictl: Run, manager: FakeManager) -> None:
    manager.add(several(3))
    refused = nnictl("trial", "ls", "--head", "2")
    assert refused.exit_code == 1
    assert "abc optimizes accuracy (highest), latency (lowest), so its trials have no single order" in refused.stderr


def test_an_export_marks_the_set(nnictl: Run, manager: FakeManager, tmp_path: Path) -> None:
    manager.add(several(1))
    manager.trials_of["abc"] = [trial("trial0", 0, finalResult='{"accuracy": 1}'), trial("other", 1, finalResult="{}")]
    file = tmp_path / "results.csv"
    assert nnictl("experiment", "export", "abc", "-f", str(file)).exit_code == 0
    assert [line.rpartition(",")[2] for line in file.read_text().splitlines()] == ["pareto", "True", "False"]
