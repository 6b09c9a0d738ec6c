"""Trials as records, as a table, as a drawing."""

from __future__ import annotations

import math

import pytest

from nni_manager.domain.errors import NniManagerError
from nni_manager.programs import html, records

pytestmark = pytest.mark.unit

ANSWER = {
    "id": "abcde",
    "sequenceId": 0,
    "status": "SUCCEEDED",
    "parameters": {"x": 1, "layer": {"_name": "conv", "size": 3}},
    "finalResult": '{"default": NaN, "loss": 0.5}',
    "finalValue": None,
    "lastValue": 0.7,
    "intermediates": 3,
    "createdMs": 1000,
    "startedMs": 2000,
    "endedMs": 4500,
    "attempt": 1,
    "message": "",
    "lastWords": "",
    "codeState": 2,
    "place": "machine-1",
}


def answer(**fields: object) -> dict[str, object]:
    return {**ANSWER, **fields}


def test_trial_keeps_reported_results() -> None:
    one = records.trial(ANSWER)
    assert math.isnan(one.result["default"]) and one.value is None and one.seconds == 2.5
    assert one.code_state == 2
    assert records.trial(answer(endedMs=None, finalResult=None)).seconds is None


def test_a_table_has_a_column_for_each_parameter_and_key() -> None:
    table = records.trials([ANSWER, answer(parameters="odd", finalResult="3", finalValue=3.0)]).to_frame()
    assert table["parameters.layer.size"][0] == 3 and table["result.loss"][0] == 0.5
    assert table["parameters"][1] == "odd" and table["result"][1] == 3


def test_a_table_begins_with_number_status_value_and_parameters() -> None:
    first = ["number", "status", "value", "parameters.x", "parameters.layer._name", "parameters.layer.size"]
    times = ["created", "started", "ended", "seconds"]
    columns = [*records.trials([ANSWER]).to_frame().columns]
    assert columns[: len(first) + len(times)] == [*first, *times] and {"id", "result.loss"} < {*columns}


def test_a_table_without_trials_has_its_columns() -> None:
    columns = [*records.trials([]).to_frame().columns]
    assert columns[:4] == ["number", "status", "value", "parameters"] and {"id", "seconds"} < {*columns}


def test_without_pandas_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(NniManagerError, match="pip install pandas"):
        records.trials([ANSWER]).to_frame()


STATE = {
    "id": "k3v9x0qa",
    "status": "DONE",
    "hold": None,
    "best": None,
    "counts": {"SUCCEEDED": 1},
    "maxTrialNumber": 1,
    "maxExperimentDuration": None,
    "execDurationMs": 1000,
}


def test_a_notebook_shows_the_results_as_a_drawing() -> None:
    shown = html.experiment(STATE, records.trials([ANSWER, answer(finalValue=1.0)]))
    assert shown.count("<circle") == 1 and "k3v9x0qa" in shown and "<a " not in shown


def test_a_notebook_links_the_page() -> None:
    shown = html.experiment(STATE, records.trials([]), 'http://localhost:8080/"><b>')
    assert '<a href="http://localhost:8080/&quot;&gt;&lt;b&gt;" target="_blank" rel="noopener">' in shown


def test_a_notebook_says_how_a_closed_page_is_opened() -> None:
    assert "<code>nnictl view k3v9x0qa</code>" in html.experiment({**STATE, "status": "STOPPED"}, records.trials([]))


def test_notebook_escapes_text_of_manager() -> None:
    tag = "<img src=x onerror=alert(1)>"
    best = {"value": tag, "parameters": {tag: tag}, "trialId": tag}
    state = {**STATE, "id": tag, "name": tag, "hold": {"sentence": tag}, "best": best, "directionNote": tag}
    odd = [answer(finalValue=1.0, sequenceId=0, status=tag, message=tag, parameters=tag)]
    for optimize_mode in ("maximize", "minimize", tag):
        shown = html.experiment({**state, "optimizeMode": optimize_mode}, records.trials(odd), f"http://h/{tag}")
        assert "<img" not in shown and shown.count("&lt;img") >= 6
