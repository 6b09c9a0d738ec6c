"""Big answers: always JSON, whatever was reported; paged and ordered."""

from __future__ import annotations

import json
import math
import sqlite3
from typing import Any

import pytest

from nni_manager.domain.attempt import Attempt, Observation
from nni_manager.domain.errors import NotFound
from nni_manager.domain.job import JobState
from nni_manager.domain.metrics import Metric, MetricType, default_number
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.domain.space.parameters import Parameters
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.experiment import answers, jobs, metrics, reports, trials
from nni_manager.store.experiment.answers import TRIAL_ORDERS
from nni_manager.store.experiment.metrics import OutboxPart
from tests.store.life import add, add_with, end, final, intermediate, report, start

pytestmark = pytest.mark.unit

#: Rows of an answer: all of them.
ALL = 1000


def strict(text: str) -> Any:
    """As browsers read JSON."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def listed(
    connection: sqlite3.Connection,
    status: str | None = None,
    order: str = "sequence",
    limit: int = ALL,
    offset: int = 0,
) -> Any:
    return strict(answers.trials(connection, status=status, order=order, limit=limit, offset=offset))


def finished(connection: sqlite3.Connection, id: str, number: int, data: str, value: float | None) -> None:
    add(connection, id, number)
    report(connection, start(connection, id), ("final", data, value))
    end(connection, id)


@pytest.fixture
def five(connection: sqlite3.Connection) -> sqlite3.Connection:
    finished(connection, "aaaaa", 0, "0.5", 0.5)
    finished(connection, "bbbbb", 1, "NaN", math.nan)
    finished(connection, "ccccc", 2, "Infinity", math.inf)
    finished(connection, "ddddd", 3, "-1e300", -1e300)
    add(connection, "eeeee", 4)
    return connection


def test_empty_experiment(connection: sqlite3.Connection) -> None:
    assert listed(connection) == {"total": 0, "trials": []}
    assert strict(answers.metrics(connection, trial_id=None, type=None, after=0, limit=ALL)) == {"metrics": []}
    assert answers.counts(connection) == {}
    assert answers.best(connection, maximize=True) is None


def test_trial_with_attempts(connection: sqlite3.Connection) -> None:
    values = {"ü \"'\n": [0.1, None, True, {"_name": "☃"}]}
    add(connection, "aaaaa", 3, values, at=1)
    job = start(connection, "aaaaa", at=2)
    report(connection, job, intermediate(0.25), final(0.1), at=3)
    reports.set_report(
        connection, job, Observation(state=JobState.RUNNING, place="hostA, gpu 0", link="https://there/1"), 8
    )
    reports.set_report(
        connection, job, Observation(state=JobState.FAILED, exit_code=3, stderr_tail="ö\x1b[0m", ended_ms=4), 9
    )
    end(connection, "aaaaa", "FAILED", "USER_CODE", "exit code 3", at=4)
    found = strict(answers.trial(connection, "aaaaa"))
    (attempt,) = found.pop("attempts")
    assert found.pop("repeats") is None
    assert found.pop("logPath").endswith("/exp1/trials/aaaaa")
    assert found == {
        "id": "aaaaa",
        "sequenceId": 0,
        "status": "FAILED",
        "parameterId": 3,
        "parameterSource": "algorithm",
        "parameters": values,
        "createdMs": 1,
        "startedMs": 2,
        "endedMs": 4,
        "attempt": 1,
        "stopRequest": None,
        "reason": "USER_CODE",
        "message": "exit code 3",
        "lastWords": "",
        "failureKey": None,
        "wait": None,
        "intermediates": 1,
        "lastValue": 0.25,
        "finalValue": 0.1,
        "finalResult": "0.1",
        "codeState": None,
        "service": "local",
        "place": "hostA, gpu 0",
        "link": "https://there/1",
    }
    assert attempt == {
        "number": 1,
        "jobName": job,
        "state": "FAILED",
        "exitCode": 3,
        "signal": None,
        "reason": "",
        "cause": None,
        "message": "",
        "stderrTail": "ö\x1b[0m",
        "givenUp": None,
        "submittedMs": 2,
        "startedMs": 2,
        "endedMs": 4,
        "channel": None,
        "runnerVersion": None,
        "runnerExit": None,
        "containers": 0,
        "epoch": 0,
        "service": "local",
        "place": "hostA, gpu 0",
        "link": "https://there/1",
        "wait": None,
        "unreachableMs": None,
        "unreachable": "",
        "interruptions": [],
    }


@pytest.mark.parametrize(
    ("reports", "lines", "said"),
    [
        ([], 0, "it reported neither a final nor an intermediate result"),
        ([intermediate(1)], 1, "it reported no final result, only 1 intermediate"),
        ([("final", '{"acc": 1}', {"acc": 1})], 1, "its final result has no number under `default`"),
        ([("final", "NaN", math.nan)], 1, "its final result is not a number"),
        ([("final", "-Infinity", -math.inf)], 1, "its final result is infinite, which is never the best"),
        (
            [],
            3,
            "it reported neither a final nor an intermediate result; dropped lines that are not results: 3,"
            " see nnimanager.log",
        ),
        ([final(1)], 3, ""),
    ],
)
def test_a_success_without_a_usable_result_says_why(
    connection: sqlite3.Connection, reports: list[Any], lines: int, said: str
) -> None:
    add(connection, "aaaaa")
    job = start(connection, "aaaaa")
    found = [
        Metric(
            type=MetricType.FINAL if kind == "final" else MetricType.PERIODICAL,
            data=data,
            value=default_number(value),
            number=number,
        )
        for number, (kind, data, value) in enumerate(reports)
    ]
    if lines:
        chunk = OutboxPart(job_name=job, outbox="outbox/main.jsonl", start=0, end=9, lines=lines, metrics=found)
        metrics.store(connection, chunk, 0)
    end(connection, "aaaaa", message="its end was not observed")
    shown = strict(answers.trial(connection, "aaaaa"))["message"]
    assert shown == "; ".join(filter(None, ("its end was not observed", said)))


def test_an_infinite_result_is_never_the_best_and_takes_no_place(connection: sqlite3.Connection) -> None:
    for name, value in (("aaaaa", math.inf), ("bbbbb", 0.5), ("ccccc", -math.inf), ("ddddd", 0.25), ("eeeee", None)):
        add(connection, name)
        job = start(connection, name)
        if value is not None:
            report(connection, job, final(value))
        end(connection, name)
    for maximize, first, order in ((True, "bbbbb", "-final"), (False, "ddddd", "final")):
        best = answers.best(connection, maximize=maximize)
        assert best is not None and best[0] == first
        ranked = strict(answers.trials(connection, status="SUCCEEDED", order=order, limit=ALL))["trials"]
        assert [trial["finalValue"] is None for trial in ranked] == [False, False, True, True, True]


def test_the_commonest_failure_has_an_example(connection: sqlite3.Connection) -> None:
    assert answers.commonest_failure(connection) is None
    for number, key in enumerate(("A", "B", "B", "A", "B", "")):
        add(connection, f"tria{number}")
        trials.finish(
            connection,
            f"tria{number}",
            status=TrialStatus.FAILED,
            reason=Reason.USER_CODE,
            message="exit code 1",
            ended_ms=1,
            failure_key=key,
            last_words=f"KeyError: {number}",
        )
    assert answers.commonest_failure(connection) == (3, "tria4", "USER_CODE", "exit code 1", "KeyError: 4")
    trial = strict(answers.trial(connection, "tria4"))
    assert (trial["lastWords"], trial["failureKey"]) == ("KeyError: 4", "B")


def test_a_trial_that_waits_says_why(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    start(connection, "aaaaa")
    jobs.close(connection, "aaaaa", 1, jobs.PLATFORM)
    trials.next_attempt(connection, "aaaaa", WaitCode.RETRY, "again")
    found = strict(answers.trial(connection, "aaaaa"))
    assert found["wait"] == {"code": "RETRY", "sentence": "again", "details": {}}
    assert found["logPath"].endswith("/aaaaa-2")
    assert [attempt["givenUp"] for attempt in found["attempts"]] == ["PLATFORM"]


def test_wait_reason_and_unreachable_time_of_a_job(
    connection: sqlite3.Connection,
) -> None:
    add(connection, "aaaaa")
    jobs.intend(connection, Attempt("aaaaa", 1, "j", service="openpai-2", intended_ms=1))
    wait = Wait(code=WaitCode.GPU, sentence="gpu 0 is busy", details={"gpu": 0})
    assert not reports.set_report(connection, "j", Observation(state=JobState.PENDING, wait=wait), 2)
    gone = Observation(state=JobState.UNKNOWN, unreachable="hostA does not answer")
    assert reports.set_report(connection, "j", gone, 3), "it says more than was known"
    assert not reports.set_report(connection, "j", gone, 4)
    (attempt,) = strict(answers.trial(connection, "aaaaa"))["attempts"]
    assert attempt["service"] == "openpai-2"
    assert attempt["wait"] == {"code": "GPU", "sentence": "gpu 0 is busy", "details": {"gpu": 0}}
    assert (attempt["unreachableMs"], attempt["unreachable"]) == (3, "hostA does not answer")
    assert attempt["interruptions"] == []


def test_interruptions_are_kept(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    jobs.intend(connection, Attempt("aaaaa", 1, "j", service="remote", intended_ms=1))
    back = Observation(state=JobState.RUNNING, started_ms=2)
    for at_ms in range(10, 1010, 10):
        reports.set_report(connection, "j", Observation(state=JobState.UNKNOWN, unreachable=f"away {at_ms}"), at_ms)
        reports.set_report(connection, "j", back, at_ms + 5)
        reports.set_report(connection, "j", back, at_ms + 6)
    reports.set_report(connection, "j", Observation(state=JobState.UNKNOWN, unreachable="once more"), 2000)
    reports.set_report(connection, "j", Observation(state=JobState.SUCCEEDED, exit_code=0, ended_ms=9), 2001)
    (attempt,) = strict(answers.trial(connection, "aaaaa"))["attempts"]
    assert attempt["interruptions"][:1] == [{"sinceMs": 10, "untilMs": 15, "sentence": "away 10"}]
    assert len(attempt["interruptions"]) == 100, "no record grows for ever"
    assert (attempt["unreachableMs"], attempt["state"]) == (None, "SUCCEEDED")


def test_a_job_that_is_known_to_be_kept_is_out_of_reach_no_more(connection: sqlite3.Connection) -> None:
    """Nothing else is said of it."""
    add(connection, "aaaaa")
    jobs.intend(connection, Attempt("aaaaa", 1, "j", service="remote", intended_ms=1))
    reports.set_report(connection, "j", Observation(state=JobState.RUNNING, started_ms=2), 3)
    reports.set_report(connection, "j", Observation(state=JobState.UNKNOWN, unreachable="hostA does not answer"), 4)
    assert jobs.why_unreachable(connection) == {"remote": ("hostA does not answer",)}
    reports.set_report(connection, "j", Observation(state=JobState.UNKNOWN, message="kept by an older keeper"), 5)
    (attempt,) = strict(answers.trial(connection, "aaaaa"))["attempts"]
    assert (attempt["state"], attempt["unreachableMs"], attempt["unreachable"]) == ("RUNNING", None, "")
    assert attempt["interruptions"] == [{"sinceMs": 4, "untilMs": 5, "sentence": "hostA does not answer"}]
    assert jobs.why_unreachable(connection) == {}


def test_unknown_trial_is_not_found(connection: sqlite3.Connection) -> None:
    with pytest.raises(NotFound, match="cannot find trial zzzzz"):
        answers.trial(connection, "zzzzz")


def test_nan_and_infinity_are_null(five: sqlite3.Connection) -> None:
    found = listed(five)
    assert [t["finalValue"] for t in found["trials"]] == [0.5, None, None, -1e300, None]
    assert [t["finalResult"] for t in found["trials"]] == ["0.5", "NaN", "Infinity", "-1e300", None]


@pytest.mark.parametrize(
    "value",
    [
        0.1,
        1 / 3,
        5e-324,
        1.2345678901234567e100,
        -0.0,
        1e16,
        123456789.123456789,
        2.0**53 + 2,
        1e-7,
    ],
)
def test_numbers_keep_all_their_digits(connection: sqlite3.Connection, value: float) -> None:
    finished(connection, "aaaaa", 0, repr(value), value)
    ((trial),) = listed(connection)["trials"]
    assert trial["finalValue"] == value


@pytest.mark.parametrize("values", [0.1, "text", None, [], [1, [2]], {}, "", "ä\"'\\", 12345678901])
def test_parameters_can_be_any_json(connection: sqlite3.Connection, values: object) -> None:
    parameters = Parameters.from_record(json.dumps({"parameter_id": 0, "parameters": values}))
    add_with(connection, "aaaaa", parameters)
    (trial,) = listed(connection)["trials"]
    assert trial["parameters"] == values and type(trial["parameters"]) is type(values)


@pytest.mark.parametrize(
    ("order", "ids"),
    [
        ("sequence", "abcde"),
        ("-sequence", "edcba"),
        ("final", "dabce"),
        ("-final", "adbce"),
    ],
)
def test_orders(five: sqlite3.Connection, order: str, ids: str) -> None:
    found = [trial["id"][0] for trial in listed(five, order=order)["trials"]]
    assert "".join(found[:2]) == ids[:2]
    assert set(found[2:]) == set(ids[2:]), "those without a finite number stand at the end"


def test_every_order_is_tested() -> None:
    assert set(TRIAL_ORDERS) == {"sequence", "-sequence", "final", "-final"}


@pytest.mark.parametrize(("limit", "offset", "ids"), [(2, 0, "ab"), (2, 3, "de"), (9, 4, "e"), (5, 5, ""), (0, 0, "")])
def test_pages(five: sqlite3.Connection, limit: int, offset: int, ids: str) -> None:
    found = listed(five, limit=limit, offset=offset)
    assert found["total"] == 5
    assert "".join(trial["id"][0] for trial in found["trials"]) == ids


def test_by_status(five: sqlite3.Connection) -> None:
    found = listed(five, status="WAITING", limit=0, offset=0)
    assert found == {"total": 1, "trials": []}
    assert [trial["id"] for trial in listed(five, status="WAITING")["trials"]] == ["eeeee"]
    assert answers.counts(five) == {"SUCCEEDED": 4, "WAITING": 1}


def test_metrics_in_the_order_they_were_stored(connection: sqlite3.Connection) -> None:
    for number, id_ in enumerate(("aaaaa", "bbbbb")):
        add(connection, id_, number)
        job = start(connection, id_)
        data = '{"default": 1, "x": "ü"}'
        report(
            connection, job, intermediate(number), ("final", data, {"default": 1}), ("intermediate", "NaN", math.nan)
        )

    def find(
        trial_id: str | None = None, type: str | None = None, after: int = 0, limit: int = ALL, offset: int = 0
    ) -> list[Any]:
        text = answers.metrics(connection, trial_id=trial_id, type=type, after=after, limit=limit, offset=offset)
        return strict(text)["metrics"]  # type: ignore[no-any-return]

    everything = find()
    assert [m["id"] for m in everything] == [1, 2, 3, 4, 5, 6]
    assert everything[1] == {
        "id": 2,
        "trialId": "aaaaa",
        "attempt": 1,
        "type": "FINAL",
        "sequence": 0,
        "step": None,
        "storedMs": 0,
        "result": '{"default": 1, "x": "ü"}',
        "value": 1.0,
        "outbox": "outbox/main.jsonl",
        "number": 1,
        "epoch": 0,
    }
    assert (everything[2]["result"], everything[2]["value"], everything[2]["sequence"]) == ("NaN", None, 1)
    assert [m["id"] for m in find("bbbbb")] == [4, 5, 6]
    assert [m["id"] for m in find(type="FINAL")] == [2, 5]
    assert [m["id"] for m in find("aaaaa", "PERIODICAL", after=1)] == [3]
    assert [m["id"] for m in find(limit=2, offset=3)] == [4, 5]


def test_the_best_is_a_number_of_a_trial_that_succeeded(five: sqlite3.Connection) -> None:
    add(five, "fffff", 5)
    report(five, start(five, "fffff"), final(-math.inf))
    end(five, "fffff", "FAILED", "USER_CODE")
    for maximize, id_ in ((True, "aaaaa"), (False, "ddddd")):
        best = answers.best(five, maximize=maximize)
        assert best is not None and best[0] == id_


@pytest.mark.parametrize("maximize", [True, False])
def test_the_best_is_found_without_looking_at_all_trials(five: sqlite3.Connection, maximize: bool) -> None:
    asked: list[str] = []
    five.set_trace_callback(asked.append)
    answers.best(five, maximize=maximize)
    five.set_trace_callback(None)
    steps = [step for *_, step in five.execute(f"EXPLAIN QUERY PLAN {asked[0]}")]
    assert steps[0] == "SEARCH trials USING INDEX trials_by_result (status=?)"
    assert set(steps[1:]) <= {"USE TEMP B-TREE FOR RIGHT PART OF ORDER BY"}


def test_oldest_of_equal_results_is_best(connection: sqlite3.Connection) -> None:
    for number, id_ in enumerate(("bbbbb", "aaaaa")):
        finished(connection, id_, number, "1", 1)
    assert [(answers.best(connection, maximize=m) or "")[0] for m in (True, False)] == ["bbbbb", "bbbbb"]


def test_unreachable_trial_has_a_message_at_once(connection: sqlite3.Connection) -> None:
    add(connection, "aaaaa")
    name = start(connection, "aaaaa")
    trials.set_running(connection, "aaaaa", 5)
    reports.set_report(connection, name, Observation(state=JobState.RUNNING, started_ms=5), 50)
    gone = Observation(state=JobState.UNKNOWN, unreachable="hostA unreachable since 12:00 (timeout)")
    reports.set_report(connection, name, gone, 60)
    (shown,) = listed(connection)["trials"]
    told = (shown["status"], shown["message"])
    assert told == ("RUNNING", "its job's state is unknown: hostA unreachable since 12:00 (timeout)")
    reports.set_report(connection, name, Observation(state=JobState.RUNNING, started_ms=5), 70)
    assert listed(connection)["trials"][0]["message"] == ""
