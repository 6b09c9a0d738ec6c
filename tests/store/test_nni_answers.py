"""NNI's answers, to the key: what is absent is left out, and what is encoded twice is encoded twice."""

from __future__ import annotations

import json
import math
import sqlite3
from typing import Any

import pytest

from nni_manager.domain.errors import NotFound
from nni_manager.domain.service import WaitCode
from nni_manager.domain.space.parameters import Parameters, ParameterSource
from nni_manager.store.experiment import experiments, jobs, trials
from nni_manager.store.nni import nni_answers
from tests.store.life import add, end, final, intermediate, report, start

pytestmark = pytest.mark.unit

FOLDER = '/data/"odd" ü/exp1/trials'


def items(text: bytes) -> list[Any]:
    found = json.loads(b"[" + text + b"]")
    assert isinstance(found, list)
    return found


def all_trials(connection: sqlite3.Connection, **options: Any) -> list[Any]:
    return items(nni_answers.trials(connection, FOLDER, **options))


def test_a_trial_that_succeeded(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa", 7, {"x": "ü\n"}, at=10)
    job = start(connection, "aaaaa", at=20)
    report(connection, job, intermediate(0.25), final(0.5), final(0.75), at=25)
    end(connection, "aaaaa", at=30)
    (found,) = all_trials(connection)
    (record,) = found.pop("hyperParameters")
    assert json.loads(record) == {
        "parameter_id": 7,
        "parameter_source": "algorithm",
        "parameters": {"x": "ü\n"},
        "parameter_index": 0,
    }
    (metric,) = found.pop("finalMetricData")
    assert metric == {
        "timestamp": 25,
        "trialJobId": "aaaaa",
        "parameterId": "7",
        "type": "FINAL",
        "sequence": 0,
        "data": '"0.5"',
    }
    assert found == {
        "trialJobId": "aaaaa",
        "status": "SUCCEEDED",
        "sequenceId": 0,
        "startTime": 20,
        "endTime": 30,
        "logPath": f"{FOLDER}/aaaaa",
    }


def test_a_trial_that_waits_has_neither_end_nor_folder(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa", None, at=10)
    (found,) = all_trials(connection)
    assert json.loads(found.pop("hyperParameters")[0])["parameter_index"] == 0
    assert found == {
        "trialJobId": "aaaaa",
        "status": "WAITING",
        "sequenceId": 0,
        "startTime": 10,
        "message": "waits",
    }


@pytest.mark.parametrize("status", ["FAILED", "USER_CANCELED", "EARLY_STOPPED"])
def test_failed_trial_has_no_final_metric(connection: sqlite3.Connection, status: str) -> None:
    add(connection, "aaaaa")
    report(connection, start(connection, "aaaaa", at=1), final(0.5))
    end(connection, "aaaaa", status, message='exit "1"', at=2)
    (found,) = all_trials(connection)
    assert "finalMetricData" not in found and found["message"] == 'exit "1"'
    assert found.get("stderrPath") == (f"{FOLDER}/aaaaa/stderr" if status == "FAILED" else None)


def test_trial_that_failed_before_its_start_has_no_folder(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    end(connection, "aaaaa", "FAILED", "SUBMIT_REJECTED", "refused")
    (found,) = all_trials(connection)
    assert "logPath" not in found and "stderrPath" not in found


def test_the_order_is_that_of_submission_and_a_status_picks(connection: sqlite3.Connection) -> None:
    for number, id_ in enumerate(("zzzzz", "aaaaa", "mmmmm")):
        add(connection, id_, number)
    start(connection, "mmmmm")
    assert [trial["trialJobId"] for trial in all_trials(connection)] == ["zzzzz", "aaaaa", "mmmmm"]
    assert [trial["trialJobId"] for trial in all_trials(connection, status="RUNNING")] == ["mmmmm"]
    assert [trial["trialJobId"] for trial in all_trials(connection, start=1, end=2)] == ["aaaaa"]
    assert all_trials(connection, status="ADD_RESUMED") == []


def test_trial_by_id(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    assert json.loads(nni_answers.trial(connection, FOLDER, "aaaaa")) == all_trials(connection)[0]
    with pytest.raises(NotFound, match="bbbbb"):
        nni_answers.trial(connection, FOLDER, "bbbbb")


def test_a_later_attempt_has_its_own_folder_and_results(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    report(connection, start(connection, "aaaaa"), intermediate(1), final(1))
    jobs.close(connection, "aaaaa", 1, jobs.PLATFORM)
    trials.next_attempt(connection, "aaaaa", WaitCode.RETRY, "again")
    report(connection, start(connection, "aaaaa", 2), final(2))
    end(connection, "aaaaa", attempt=2)
    (found,) = all_trials(connection)
    assert found["logPath"] == f"{FOLDER}/aaaaa-2" and found["finalMetricData"][0]["data"] == '"2"'
    assert [metric["data"] for metric in items(nni_answers.metrics(connection))] == ['"2"']


def test_metrics_have_six_keys_and_are_encoded_twice(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa", None)
    value = {"default": 0.5, "ü": '"'}
    job = start(connection, "aaaaa")
    report(
        connection,
        job,
        intermediate(0.25),
        ("intermediate", "NaN", math.nan),
        ("final", json.dumps(value), value),
        at=9,
    )
    first, second, last = items(nni_answers.metrics(connection))
    assert first == {
        "timestamp": 9,
        "trialJobId": "aaaaa",
        "parameterId": None,
        "type": "PERIODICAL",
        "sequence": 0,
        "data": '"0.25"',
    }
    assert (second["sequence"], last["sequence"], last["type"]) == (1, 0, "FINAL")
    assert second["data"] == '"NaN"' and math.isnan(json.loads(json.loads(second["data"])))
    assert json.loads(json.loads(last["data"])) == value


def three_trials(connection: sqlite3.Connection) -> None:
    """With results in turn."""
    names = {id_: number for number, id_ in enumerate(("aaaaa", "bbbbb", "ccccc"))}
    for id_, number in names.items():
        add(connection, id_, number)
    jobs_ = {id_: start(connection, id_) for id_ in names}
    for step in range(2):
        for id_, number in names.items():
            report(connection, jobs_[id_], intermediate(10 * number + step), start=10 * step)
    report(connection, jobs_["bbbbb"], final(99), start=20)
    end(connection, "bbbbb")


def data(text: bytes) -> list[float]:
    return [json.loads(json.loads(metric["data"])) for metric in items(text)]


def test_cuts_of_the_metrics(connection: sqlite3.Connection) -> None:
    three_trials(connection)
    assert data(nni_answers.metrics(connection)) == [0, 10, 20, 1, 11, 21, 99]
    assert data(nni_answers.metrics(connection, type="FINAL")) == [99]
    assert data(nni_answers.metrics(connection, trial_id="bbbbb", type="PERIODICAL")) == [10, 11]
    assert data(nni_answers.metrics(connection, trial_id="nobod")) == []
    assert data(nni_answers.metrics_of_range(connection, 1, 2)) == [10, 20, 11, 21, 99]
    assert data(nni_answers.metrics_of_range(connection, 0, 0)) == [0, 1]
    assert data(nni_answers.metrics_of_range(connection, 2, 1)) == []
    assert data(nni_answers.latest_metrics(connection)) == [99, 1, 11, 21]


def test_an_experiment_without_trials(connection: sqlite3.Connection) -> None:
    found = [
        nni_answers.trials(connection, FOLDER),
        nni_answers.metrics(connection),
        nni_answers.latest_metrics(connection),
        nni_answers.export(connection),
        nni_answers.imports(connection),
        nni_answers.statistics(connection),
    ]
    assert found == [b""] * 6
    assert (nni_answers.settled_trials(connection), nni_answers.settled_metrics(connection)) == (0, 0)


def test_settled_trials_and_metrics(connection: sqlite3.Connection) -> None:
    three_trials(connection)
    assert (nni_answers.settled_trials(connection), nni_answers.settled_metrics(connection)) == (0, 1)
    end(connection, "aaaaa")
    assert (nni_answers.settled_trials(connection), nni_answers.settled_metrics(connection)) == (2, 3)
    end(connection, "ccccc")
    assert (nni_answers.settled_trials(connection), nni_answers.settled_metrics(connection)) == (3, 8)


def test_the_export_has_three_keys_and_values_encoded_once(connection: sqlite3.Connection) -> None:
    three_trials(connection)
    end(connection, "aaaaa")  # without a final result
    assert items(nni_answers.export(connection)) == [{"parameter": {"x": 1}, "value": "99", "trialJobId": "bbbbb"}]


def test_non_json_parameters_are_null_in_export(connection: sqlite3.Connection) -> None:
    values = {"x": math.nan, "y": -math.inf, "z": 1}
    record = Parameters(parameter_id=0, source=ParameterSource.ALGORITHM, values=values).record()
    trials.add(
        connection,
        id="aaaaa",
        parameter_id=0,
        record=record,
        wait_code=WaitCode.CONCURRENCY,
        wait_sentence="waits",
        now_ms=0,
    )
    report(connection, start(connection, "aaaaa"), final(1))
    end(connection, "aaaaa")
    (found,) = items(nni_answers.export(connection))
    assert found["parameter"] == {"x": None, "y": None, "z": 1}
    assert "NaN" in all_trials(connection)[0]["hyperParameters"][0]


def test_imports_are_texts(connection: sqlite3.Connection) -> None:
    text = '[{"parameter": {"x": 1}, "value": 0.5}]'
    experiments.add_import(connection, text, 3)
    assert items(nni_answers.imports(connection)) == [text]


def test_statistics_are_by_first_appearance(connection: sqlite3.Connection) -> None:
    three_trials(connection)
    end(connection, "ccccc", "FAILED")
    assert items(nni_answers.statistics(connection)) == [
        {"trialJobStatus": "RUNNING", "trialJobNumber": 1},
        {"trialJobStatus": "SUCCEEDED", "trialJobNumber": 1},
        {"trialJobStatus": "FAILED", "trialJobNumber": 1},
    ]
