"""The table: filter, order, page, and what stands in a row."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nni_manager.domain.trial_status import TrialStatus
from tests.analysis.filled import Filled

pytestmark = pytest.mark.unit


def numbers(answer: dict[str, Any]) -> list[int]:
    return [row["number"] for row in answer["rows"]]


def test_no_trials(experiment: Filled) -> None:
    answer = experiment.asked("trials", "")
    assert (answer["total"], answer["matching"], answer["pages"], answer["rows"]) == (0, 0, 1, [])
    columns = experiment.asked("columns", "")
    assert columns["direction"] == "minimize" and columns["statuses"] == {}
    assert [one["name"] for one in columns["parameters"]] == [
        "rate",
        "units",
        "kind",
        "layer",
        "layer.size",
        "layer.width",
    ]


def test_row_has_all_fields_of_a_trial(experiment: Filled) -> None:
    parameters = {"rate": 0.01, "units": 3, "kind": None, "layer": {"_name": "conv", "size": 5}}
    experiment.add(parameters, final={"default": 0.5, "acc": 0.9}, curve=[3.0, 2.0], ms=4000)
    (row,) = experiment.asked("trials", "")["rows"]
    assert row["parameters"] == {"rate": 0.01, "units": 3, "kind": None, "layer": "conv", "layer.size": 5}
    assert row["metrics"] == {"default": 0.5, "acc": 0.9} and row["result"] == 0.5 and row["latest"] == 2.0
    assert (row["steps"], row["rank"], row["durationMs"], row["status"]) == (2, 1, 4000, "SUCCEEDED")


def test_running_trials_show_latest_value_and_small_curve(experiment: Filled) -> None:
    experiment.add(curve=[float(value) for value in range(100)], status=TrialStatus.RUNNING)
    (row,) = experiment.asked("trials", "")["rows"]
    assert row["latest"] == 99 and row["spark"][-1] == 99 and len(row["spark"]) <= 40
    assert row["result"] is None and row["durationMs"] > 0


def test_failed_and_waiting_trials_say_why(experiment: Filled) -> None:
    experiment.add(status=TrialStatus.FAILED, stderr="Traceback\nValueError: no rate\n")
    experiment.add(status=TrialStatus.WAITING)
    waiting, failed = experiment.asked("trials", "")["rows"]
    assert failed["line"] == "ValueError: no rate" and "exit code 1" in failed["reason"] and failed["failure"]
    assert waiting["reason"] == "waits" and waiting["startedMs"] is None
    assert numbers(experiment.asked("trials", f"failure={failed['failure']}")) == [0]
    assert numbers(experiment.asked("trials", "q=no+RATE")) == [0]


def test_missing_and_nan_results_are_last_in_either_order(experiment: Filled) -> None:
    for value in (2.0, math.nan, 1.0, None, math.inf):
        experiment.add(final=value)
    assert numbers(experiment.asked("trials", "sort=result")) == [2, 0, 4, 1, 3]
    assert numbers(experiment.asked("trials", "sort=-result")) == [4, 0, 2, 1, 3]
    results = {row["number"]: row["result"] for row in experiment.asked("trials", "")["rows"]}
    assert results == {0: 2.0, 1: "NaN", 2: 1.0, 3: None, 4: "Infinity"}
    ranks = {row["number"]: row["rank"] for row in experiment.asked("trials", "")["rows"]}
    assert ranks == {0: 2, 1: None, 2: 1, 3: None, 4: None}


def test_filters_are_inclusive_and_take_exponents(experiment: Filled) -> None:
    for rate in (1e-4, 1e-3, 1e-2):
        experiment.add({"rate": rate}, final=rate)
    assert numbers(experiment.asked("trials", "p.rate=1e-3..1e-2&sort=number")) == [1, 2]
    assert numbers(experiment.asked("trials", "p.rate=..1e-3&sort=number")) == [0, 1]
    assert numbers(experiment.asked("trials", "m.default=0.01..")) == [2]


def test_choices_texts_null_and_nested_names_are_filtered(experiment: Filled) -> None:
    experiment.add({"kind": "a", "layer": {"_name": "conv", "size": 3}})
    experiment.add({"kind": None, "layer": {"_name": "dense", "width": 8}})
    experiment.add({"kind": "with, comma", "layer": {"_name": "conv", "size": 5}})
    experiment.add({"kind": "null"})
    assert numbers(experiment.asked("trials", "p.kind=a,null&sort=number")) == [0, 1, 3]
    assert numbers(experiment.asked("trials", 'p.kind="null"')) == [3]
    assert numbers(experiment.asked("trials", 'p.kind="with, comma"')) == [2]
    assert numbers(experiment.asked("trials", "p.layer=conv&sort=number")) == [0, 2]
    assert numbers(experiment.asked("trials", "p.layer.size=5")) == [2]
    assert numbers(experiment.asked("trials", "p.layer.width=1..10")) == [1]
    assert numbers(experiment.asked("trials", "sort=p.layer.size")) == [0, 2, 1, 3]


@pytest.mark.parametrize("parameters", [[1, 2], "text", 3, None, True, {"a": {"b": [1, {"c": 2}]}}, {"_name": "x"}])
def test_parameters_may_be_anything(experiment: Filled, parameters: Any) -> None:
    experiment.add({"value": parameters} if parameters is None else parameters, final=1.0)
    experiment.add({"rate": 1}, final=2.0)
    assert experiment.asked("columns", "")["total"] == 2
    assert len(experiment.asked("trials", "sort=p.rate")["rows"]) == 2


@pytest.mark.parametrize("result", ["text", [1, 2], {"default": "x"}, {"acc": 1}, True, {}, 10**400, {"acc": math.nan}])
def test_results_may_be_anything(experiment: Filled, result: Any) -> None:
    experiment.add(final=result, curve=[result])
    experiment.add(final=1.0)
    assert experiment.asked("trials", "sort=-result")["matching"] == 2
    assert experiment.asked("columns", "")["keys"][0] == {
        "name": "default",
        "direction": "minimize",
        "count": 1,
        "min": 1,
        "max": 1,
    }


def test_pages_and_statuses(experiment: Filled) -> None:
    for number in range(7):
        experiment.add(final=float(number), status=TrialStatus.EARLY_STOPPED if number % 2 else TrialStatus.SUCCEEDED)
    answer = experiment.asked("trials", "limit=2&page=2&status=SUCCEEDED&sort=number")
    assert numbers(answer) == [4, 6] and (answer["matching"], answer["pages"]) == (4, 2)
    assert experiment.asked("columns", "")["statuses"] == {"SUCCEEDED": 4, "EARLY_STOPPED": 3}


def test_what_changed_is_read_again(experiment: Filled) -> None:
    experiment.add(final=1.0)
    running = experiment.add({"rate": 0.2}, curve=[5.0], status=TrialStatus.RUNNING)
    assert [row["status"] for row in experiment.asked("trials", "")["rows"]] == ["RUNNING", "SUCCEEDED"]
    experiment.connection.execute("UPDATE trials SET final_data = '0.5', final_value = 0.5 WHERE sequence_id = ?", (1,))
    experiment.end(running, TrialStatus.SUCCEEDED)
    experiment.add({"rate": 0.3}, final=3.0)
    answer = experiment.asked("trials", "sort=result&p.rate=0.1..0.2")
    assert numbers(answer) == [running, 0] and answer["total"] == 3 and answer["rows"][0]["rank"] == 1


def test_unknown_names_are_refused_with_those_there_are(experiment: Filled) -> None:
    experiment.add({"rate": 1})
    header, text = experiment.respond("trials", "p.rat=1..2")
    assert header["refused"] == "InvalidInput" and "p.rat" in text.decode() and "rate" in text.decode()
    header, text = experiment.respond("trials", "key=nothing")
    assert header["refused"] == "InvalidInput" and text.decode().startswith("key:")


def test_stored_text_with_half_a_character_is_answered(experiment: Filled) -> None:
    experiment.add({"kind": "\ud800"}, final=math.inf)
    (row,) = experiment.asked("trials", "")["rows"]
    assert row["parameters"]["kind"] == "\ud800" and row["result"] == "Infinity"
    assert experiment.asked("columns", "")["total"] == 1
