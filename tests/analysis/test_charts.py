"""What charts are answered: sampled, with the best, the failed, the absent and the infinite in their places."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nni_manager.analysis.answers import parameters, results
from nni_manager.analysis.answers.curves import Curve, _band
from nni_manager.analysis.questions import QUESTIONS
from nni_manager.domain.trial_status import TrialStatus
from tests.analysis.filled import Filled, filled

pytestmark = pytest.mark.unit

CHARTS = sorted(QUESTIONS.keys() - {"trial", "pair", "pareto"})


def settled(experiment: Filled, question: str, query: str = "") -> dict[str, Any]:
    """The answer once nothing in it is being computed any more."""
    deadline = time.monotonic() + 50
    while time.monotonic() < deadline:
        header, text = experiment.respond(question, query)
        assert "refused" not in header, text.decode()
        if header["settled"]:
            return experiment.asked(question, query)
        time.sleep(0.02)  # a thread computes
    raise AssertionError("it is not settled in 50 s")


@pytest.fixture
def mixed(experiment: Filled) -> Filled:
    """Trials of every kind."""
    conv, dense = {"_name": "conv", "size": 3}, {"_name": "dense", "width": 16}
    for number in range(12):
        layer = conv if number % 2 else dense
        parameters = {
            "rate": 10.0 ** -(number % 4),
            "units": number % 9 + 1,
            "kind": (None, "a")[number % 2],
            "layer": layer,
        }
        curve = [1.0 / (step + 1) + number for step in range(5)]
        experiment.add(parameters, final={"default": float(number), "acc": -float(number)}, curve=curve)
    experiment.add({"rate": 0.5}, final=math.nan, curve=[math.nan, math.inf, 1.0])
    experiment.add({"rate": 0.5}, final=math.inf)
    experiment.add({"rate": 0.5}, final="no number")
    experiment.add({"rate": 0.9}, status=TrialStatus.FAILED, stderr="ValueError: rate 0.9\n")
    experiment.add({"rate": 0.2}, curve=[4.0, 3.0], status=TrialStatus.EARLY_STOPPED)
    experiment.add({"rate": 0.2}, curve=[4.0, 2.5], status=TrialStatus.RUNNING)
    experiment.add({"rate": 0.2}, status=TrialStatus.WAITING)
    return experiment


@pytest.mark.parametrize("question", CHARTS)
@pytest.mark.parametrize("query", ["", "key=acc&direction=maximize", "p.rate=0.1..1&clip=1.5&selected=3,99", "x=clock"])
def test_every_chart_of_mixed_trials(mixed: Filled, question: str, query: str) -> None:
    answer = mixed.asked(question, query)
    assert answer["revision"] == str(mixed.revision)


@pytest.mark.parametrize("question", CHARTS)
def test_every_chart_without_trials(experiment: Filled, question: str) -> None:
    experiment.asked(question, "")
    experiment.add(status=TrialStatus.WAITING)
    experiment.asked(question, "x=elapsed")


@pytest.mark.parametrize("question", CHARTS)
@pytest.mark.parametrize("parameters", [[1, 2], "text", 3, {"value": None}, {"a": {"b": [1]}}])
def test_every_chart_of_odd_parameters(tmp_path: Path, question: str, parameters: Any) -> None:
    with filled(tmp_path, space="any text, as a user's tuner takes it") as experiment:
        for value in (1.0, 2.0, 1.5):
            experiment.add(parameters, final=value)
        experiment.asked(question, "")


def test_results_have_the_best_so_far_and_provisional_values(mixed: Filled) -> None:
    answer = mixed.asked("results", "")
    assert answer["best"]["number"] == [0] and answer["density"] is None
    by_number = dict(zip(answer["points"]["number"], answer["points"]["provisional"], strict=True))
    assert by_number == {**dict.fromkeys(range(12), False), 16: True, 17: True}
    assert (answer["shown"], answer["of"], answer["notNumbers"]) == (14, 19, 3)
    assert mixed.asked("results", "direction=maximize")["best"]["number"] == list(range(12))
    assert answer["limits"] == {"low": 0, "high": 11}


def test_outliers_are_hidden_and_counted(experiment: Filled) -> None:
    for value in [*range(20), 10_000]:
        experiment.add(final=float(value))
    answer = experiment.asked("results", "clip=1")
    assert answer["clipped"] == 1 and answer["limits"]["high"] == 19
    assert experiment.asked("results", "")["clipped"] == 0


def test_equal_results_have_one_score(experiment: Filled) -> None:
    for value in (2.0, 1.0, 1.0, 3.0, 3.0):
        experiment.add(final=value)
    lines = experiment.asked("parallel", "")["lines"]
    scores = dict(zip(lines["number"], lines["score"], strict=True))
    assert scores == {1: 1, 2: 1, 0: 0.3333, 3: 0, 4: 0}


def test_results_that_are_all_equal_are_all_the_best(experiment: Filled) -> None:
    for _ in range(3):
        experiment.add(final=0.5)
    assert experiment.asked("parallel", "")["lines"]["score"] == [1, 1, 1]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_best_result_is_not_an_outlier(experiment: Filled, direction: str) -> None:
    for value in (*range(20), 1000.0, -1000.0):
        experiment.add(final=value)
    best, worst = (21, 20) if direction == "minimize" else (20, 21)
    answer = experiment.asked("results", f"clip=1&direction={direction}")
    assert answer["best"]["number"][-1] == best and best in answer["points"]["number"]
    assert worst not in answer["points"]["number"] and answer["clipped"] == 1
    assert experiment.asked("results", f"clip=1&direction={direction}&selected={worst}")["clipped"] == 0


def test_many_results_are_a_density_and_the_telling_points(experiment: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MOST_POINTS", 50)
    monkeypatch.setattr(results, "_NEWEST", 5)
    for number in range(120):
        experiment.add(final=float(1000 - number if number < 60 else number))
    answer = experiment.asked("results", "top=3&selected=77")
    assert sum(answer["density"]["count"]) == 120
    shown = set(answer["points"]["number"])
    assert {57, 58, 59, 77, 0, 119, 118, 115} & shown and {58, 59, 77, 119, 0} - shown == {58} - shown
    assert answer["of"] == 120 and answer["shown"] == len(shown) < 120
    assert answer == experiment.asked("results", "top=3&selected=77")
    near = experiment.asked("results", "from=10&to=40")
    assert near["density"] is None and near["points"]["number"] == list(range(10, 41))


def test_curves_show_top_running_selected_and_a_band(mixed: Filled) -> None:
    answer = mixed.asked("curves", "top=2&selected=5")
    assert answer["of"] == 18, "those that ended without a curve count, too, not the one that waits"
    assert {curve["number"]: curve["why"] for curve in answer["curves"]} == {
        17: "running",
        1: "top",
        0: "top",
        5: "selected",
    }
    assert [curve["number"] for curve in answer["curves"] if curve["why"] == "top"] == [1, 0], "the best is drawn last"
    assert answer["band"]["count"][0] == 10 and answer["band"]["x"] == [0, 1, 2, 3, 4]
    elapsed = mixed.asked("curves", "top=1&x=elapsed")
    assert elapsed["curves"][-1]["x"] == [100, 200, 300, 400, 500] and elapsed["band"] is None


def test_long_curves_are_thinned_and_keep_their_extremes(experiment: Filled) -> None:
    experiment.add(curve=[100.0 if step == 517 else float(step % 7) for step in range(1000)], final=1.0)
    (curve,) = experiment.asked("curves", "")["curves"]
    assert len(curve["x"]) <= 200 and curve["x"][0] == 0 and curve["x"][-1] == 999 and max(curve["y"]) == 100


def test_parallel_coordinates_draw_the_best_last(mixed: Filled) -> None:
    answer = settled(mixed, "parallel", "axes=layer,rate,layer.size")
    assert [axis["name"] for axis in answer["axes"]] == ["layer", "rate", "layer.size", "result"]
    assert answer["axes"][0]["choices"] == ["conv", "dense"] and answer["axes"][1]["log"]
    assert answer["lines"]["number"][-1] == 0 and answer["lines"]["score"][-1] == 1 and answer["lines"]["score"][0] == 0
    sizes = dict(zip(answer["lines"]["number"], answer["lines"]["values"][2], strict=True))
    assert sizes[1] is not None and sizes[0] is None
    assert sum(answer["histograms"][0]["counts"]) == 12
    worst = settled(mixed, "parallel", "direction=maximize")
    assert worst["lines"]["number"][-1] == 11 and worst["lines"]["score"][-1] == 1


def test_the_sample_of_lines_is_the_same_and_has_the_best(experiment: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "MOST_LINES", 10)
    for number in range(40):
        experiment.add({"rate": number / 40}, final=float(40 - number))
    first = settled(experiment, "parallel", "top=5&selected=7")["lines"]["number"]
    assert len(first) == 10 and first[-5:] == [35, 36, 37, 38, 39] and 7 in first
    assert settled(experiment, "parallel", "top=5&selected=7")["lines"]["number"] == first


def test_importance_names_method_and_sample(experiment: Filled) -> None:
    few = experiment.asked("importance", "")
    assert few["state"] == "unavailable"
    assert few["sentence"] == "Importance needs at least 10 trials with a result; there are 0."
    for number in range(60):
        parameters = {"rate": 10 ** (-number / 15), "units": number * 7 % 9 + 1, "kind": "ab"[number % 2]}
        experiment.add(parameters, final=abs(number - 20.0))
    assert experiment.asked("importance", "")["state"] in ("computing", "ready"), "it is computed in a thread"
    answer = settled(experiment, "importance")
    assert answer["state"] == "ready" and answer["method"] == "PED-ANOVA" and answer["sample"] == 60, answer
    assert answer["importances"][0]["name"] == "rate" and len(answer["importances"]) == 3
    effect = settled(experiment, "effect")
    assert effect["parameters"][0]["name"] == "rate" and effect["parameters"][0]["importance"] > 0
    experiment.add({"rate": 0.5, "units": 1, "kind": "a"}, final=3.0)
    assert experiment.asked("importance", "")["state"] == "ready", "one trial in sixty changes nothing"


def test_importances_are_computed_one_after_the_other(experiment: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work: list[str] = []
    together: list[int] = []
    evaluate = parameters._evaluate

    def counted(*given: Any) -> dict[str, float]:
        at_work.append("one")
        together.append(len(at_work))
        time.sleep(0.1)  # another one would begin
        found = evaluate(*given)
        at_work.pop()
        return found

    monkeypatch.setattr(parameters, "_evaluate", counted)
    for number in range(20):
        experiment.add({"rate": 10 ** (-number / 15)}, final=number)
    asked = ["direction=minimize", "direction=maximize"]
    assert [experiment.asked("importance", query)["state"] for query in asked] == ["computing"] * 2
    assert [settled(experiment, "importance", query)["state"] for query in asked] == ["ready"] * 2
    assert len(together) >= 2 and set(together) == {1}  # some may be of questions before these


def test_effect_bins_hold_all_results(mixed: Filled) -> None:
    (effect,) = mixed.asked("effect", "parameter=units")["parameters"]
    assert sum(bin["count"] for bin in effect["bins"]) == 12
    assert effect["bins"][0] == {
        "place": 0,
        "low": 0.5,
        "high": 1.5,
        "choice": None,
        "count": 2,
        "median": 4.5,
        "p10": 0.9,
        "p90": 8.1,
        "best": 0,
    }
    (kinds,) = mixed.asked("effect", "parameter=kind&direction=maximize")["parameters"]
    assert [(bin["choice"], bin["count"], bin["best"]) for bin in kinds["bins"]] == [("a", 6, 11), (None, 6, 10)]


def test_pair_cells(mixed: Filled) -> None:
    answer = mixed.asked("pair", "a=layer&b=rate")
    assert sum(cell["count"] for cell in answer["cells"]) == 12
    assert answer["a"]["choices"] == ["conv", "dense"] and len(answer["b"]["edges"]) == 25
    best = max(answer["cells"], key=lambda cell: cell["rank"])
    assert best["best"] == 0 and best["number"] == 0 and answer["a"]["choices"][best["i"]] == "dense"
    chosen = settled(mixed, "pair")  # one answer: the order of the axes changes once importance is there
    assert chosen["a"]["name"] != chosen["b"]["name"]


def test_distribution_counts_every_result(mixed: Filled) -> None:
    answer = mixed.asked("distribution", "")
    assert sum(bin["count"] for bin in answer["bins"]) == 12 and answer["quantiles"]["p50"] == 5.5
    assert answer["edf"]["x"][0] == 0 and answer["edf"]["share"][-1] == 1


def test_on_a_log_axis_the_distribution_has_what_is_above_zero(experiment: Filled) -> None:
    for value in (-1.0, 0.0, 0.001, 0.01, 0.1, 1.0, 10.0):
        experiment.add(final=value)
    answer = experiment.asked("distribution", "")
    bins = answer["logBins"]
    assert sum(bin["count"] for bin in bins) == 5 and answer["notPositive"] == 2
    assert (bins[0]["low"], bins[-1]["high"]) == (0.001, 10)
    assert len({round(bin["high"] / bin["low"], 3) for bin in bins}) == 1, "all as wide on the axis"
    experiment.add(final=0.0, status=TrialStatus.SUCCEEDED)
    assert experiment.asked("distribution", "m.default=..0")["logBins"] == []


def test_timeline_has_lanes_for_what_ran_at_a_time(experiment: Filled) -> None:
    for place in ("m1", "m1", "m2"):
        experiment.add(ms=15_000, final=1.0, place=place)
    experiment.add(status=TrialStatus.RUNNING, place="m2")
    answer = experiment.asked("timeline", "")
    assert answer["lanes"] == ["m1 · 1", "m1 · 2", "m2 · 1", "m2 · 2"]
    assert [bar["lane"] for bar in answer["bars"]] == [0, 1, 2, 3]
    assert max(answer["concurrency"]["running"]) == 2 and answer["concurrency"]["t"][0] == answer["bars"][0]["startMs"]
    part = experiment.asked("timeline", f"to={answer['bars'][1]['startMs']}")
    assert [bar["number"] for bar in part["bars"]] == [0, 1]


def test_timeline_follows_what_runs_and_is_tried_again(experiment: Filled) -> None:
    experiment.add(final=1.0, place="m1")
    running = experiment.add(status=TrialStatus.RUNNING, place="m1")
    assert [bar["status"] for bar in experiment.asked("timeline", "")["bars"]] == ["SUCCEEDED", "RUNNING"]
    experiment.end(running, TrialStatus.SUCCEEDED)
    experiment.add(status=TrialStatus.RUNNING, place="m2")
    answer = experiment.asked("timeline", "")
    assert [bar["number"] for bar in answer["bars"]] == [0, 1, 2] and answer["lanes"] == ["m1", "m2"]
    assert answer["bars"][1]["status"] == "SUCCEEDED"
    assert [row["number"] for row in experiment.asked("trials", "sort=-place")["rows"]] == [2, 0, 1]


def test_failures_are_grouped_with_the_ranges_they_happen_in(experiment: Filled) -> None:
    for number in range(40):
        parameters = {"units": number % 10, "rate": number % 7 / 7, "kind": "ab"[number % 3 == 0]}
        if parameters["units"] >= 7:
            experiment.add(parameters, status=TrialStatus.FAILED, stderr=f"ValueError: {number} units\n")
        elif number % 3 == 0:
            experiment.add(parameters, status=TrialStatus.FAILED, stderr="MemoryError\n", exit_code=3)
        else:
            experiment.add(parameters, final=1.0)
    answer = experiment.asked("failures", "")
    first, second = answer["groups"]
    assert answer["failed"] == first["count"] + second["count"] == 22
    assert first["line"].startswith("ValueError") and first["exitCode"] == 1 and first["cause"] == "USER_CODE"
    assert first["ranges"][0] == {
        "parameter": "units",
        "text": "units ≥ 7",
        "inside": 12,
        "of": 12,
        "low": 7,
        "high": None,
        "choices": None,
    }
    assert second["ranges"][0]["text"] == "kind = b" and second["example"]["number"] == second["last"]["number"] == 36
    assert first["first"]["number"] == 7 and first["failure"] != second["failure"]
    assert experiment.asked("trials", f"failure={first['failure']}")["matching"] == 12


def test_one_trial_among_the_others(mixed: Filled) -> None:
    answer = mixed.asked("trial", "number=1&sort=result&status=SUCCEEDED")
    assert (answer["rank"], answer["of"], answer["previous"], answer["next"]) == (2, 12, 0, 2)
    assert 0 < answer["percentiles"]["rate"] < 1
    header, text = mixed.respond("trial", "number=99")
    assert header["refused"] == "NotFound" and "99" in text.decode()
    assert mixed.respond("trial")[0]["refused"] == "InvalidInput"


def test_band_goes_by_steps(experiment: Filled) -> None:
    curves = [
        Curve(np.array(steps), np.zeros(len(steps)), np.array(values, np.float64))
        for steps, values in (([0, 10, 20], [1, 2, 3]), ([10, 20], [4, np.nan]))
    ]
    band = _band(curves)
    assert band is not None and (band["x"], band["p50"], band["count"]) == ([0, 10, 20], [1, 3, 3], [1, 2, 1])
