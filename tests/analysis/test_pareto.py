"""Trials by two of several objectives: the front, what another is better than, what breaks a constraint."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.analysis.answers import pareto
from nni_manager.domain.trial_status import TrialStatus
from tests.analysis.filled import Filled, with_goals

pytestmark = pytest.mark.unit

OBJECTIVES = {"acc": "maximize", "ms": "minimize", "size": "minimize"}


def points(answer: dict[str, Any], what: str) -> list[int]:
    told = answer["points"]
    return [number for number, flag in zip(told["number"], told[what], strict=True) if flag]


def test_front_has_non_dominated_trials(experiment: Filled) -> None:
    with_goals(experiment, {"acc": "maximize", "ms": "minimize"})
    for acc, ms in ((0.9, 50), (0.8, 10), (0.7, 20), (0.95, 90), (0.8, 10)):
        experiment.add(final={"acc": acc, "ms": ms, "default": acc})
    experiment.add(final={"acc": 0.99, "default": 0.99})
    experiment.add(final={"acc": 1.0, "ms": 1, "default": 1.0}, status=TrialStatus.FAILED)
    answer = experiment.asked("pareto", "")
    assert points(answer, "front") == [0, 1, 3, 4], "of equal results all are in it"
    assert (answer["x"], answer["y"], answer["frontSize"]) == ("acc", "ms", 4)
    assert answer["points"]["x"] == [0.9, 0.8, 0.7, 0.95, 0.8]
    assert (answer["shown"], answer["of"], answer["notNumbers"]) == (5, 7, 1)


def test_two_of_three_objectives_are_shown_but_all_count(experiment: Filled) -> None:
    with_goals(experiment, OBJECTIVES)
    for acc, ms, size in ((0.9, 50, 5), (0.8, 60, 1), (0.7, 70, 7)):
        experiment.add(final={"acc": acc, "ms": ms, "size": size})
    answer = experiment.asked("pareto", "a=ms&b=acc")
    assert (answer["x"], answer["y"]) == ("ms", "acc")
    assert points(answer, "front") == [0, 1], "the second one is the smallest, which the chart does not show"
    assert experiment.asked("pareto", "b=acc")["x"] == "ms"
    header, text = experiment.respond("pareto", "a=speed")
    assert "refused" in header and "speed is not an objective; use acc, ms, size" in text.decode()


def test_constraint_violations_rank_after_feasible_trials(experiment: Filled) -> None:
    with_goals(experiment, {"acc": "maximize", "ms": "minimize"}, {"size": "<= 8"})
    experiment.add(final={"acc": 0.9, "ms": 1, "size": 12})
    experiment.add(final={"acc": 0.8, "ms": 1, "size": 9})
    answer = experiment.asked("pareto", "")
    assert points(answer, "front") == [1] and points(answer, "feasible") == [], "the one that breaks it least"
    experiment.add(final={"acc": 0.1, "ms": 99, "size": 8})
    answer = experiment.asked("pareto", "")
    assert points(answer, "front") == [2] == points(answer, "feasible")
    assert answer["constraints"] == {"size": "<= 8"}


def test_a_filter_leaves_points_out_and_the_front_as_it_is(experiment: Filled) -> None:
    with_goals(experiment, {"acc": "maximize", "ms": "minimize"})
    for acc in (0.5, 0.9, 0.7):
        experiment.add({"rate": acc}, final={"acc": acc, "ms": 1})
    answer = experiment.asked("pareto", "p.rate=0..0.8")
    assert answer["points"]["number"] == [0, 2] and points(answer, "front") == [] and answer["frontSize"] == 1


def test_of_many_trials_the_front_is_drawn_whole(experiment: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pareto, "_MOST", 10)
    with_goals(experiment, {"acc": "maximize", "ms": "minimize"})
    for step in range(40):
        experiment.add(final={"acc": step / 40, "ms": step if step < 5 else 100 + step})
    answer = experiment.asked("pareto", "")
    assert answer["shown"] == 10 and answer["of"] == 40
    assert experiment.asked("pareto", "") == answer, "the same ones each time"


def test_without_objectives_there_is_no_front(experiment: Filled) -> None:
    experiment.add(final=1.0)
    header, text = experiment.respond("pareto", "")
    assert "refused" in header and "sets no objectives" in text.decode()


def test_best_so_far_and_ranks_put_feasible_trials_first(experiment: Filled) -> None:
    with_goals(experiment, {"acc": "maximize"}, {"size": "<= 8"})
    for acc, size in ((0.9, 12), (0.2, 8), (0.7, 9), (0.5, 1), (0.3, 2)):
        experiment.add(final={"acc": acc, "size": size})
    answer = experiment.asked("results", "key=acc")
    assert answer["best"]["number"] == [1, 3] and answer["best"]["value"] == [0.2, 0.5]
    assert answer["points"]["feasible"] == [False, True, False, True, True]
    rows = experiment.asked("trials", "key=acc&sort=number")["rows"]
    assert [row["rank"] for row in rows] == [4, 3, 5, 1, 2]
