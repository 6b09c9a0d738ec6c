"""Every cell of the outcome table: each evidence with each stop request, as users see it.

The scenarios run in parallel (`outcome_scenarios`); the tests check the views that they return. Runner versions are
posted by the test itself.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator

import pytest

from nni_manager.domain.trial import reason_in_words
from tests.acceptance import cluster, user_views
from tests.acceptance.cluster import Cluster, say
from tests.acceptance.outcome_scenarios import OUTAGE, Scenarios, running_scenarios, when_all_is_told
from tests.acceptance.outcome_table import (
    COLUMNS,
    DISPLACED,
    GOOD,
    ROWS,
    TABLE,
    UNTIL_FIRST_RESULT_S,
    Row,
    outcome,
    request,
)
from tests.acceptance.scripted_experiment import Json, View, listed_tuner, stern_assessor
from tests.waiting import until
from trial_runner import protocol

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(90), pytest.mark.group("outcome_table")]


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    with running_scenarios(tmp_path_factory.mktemp("scenarios")) as scenarios:
        yield scenarios


# The cells


@pytest.mark.parametrize("column", COLUMNS)
def test_every_outcome_of_a_column(scenarios: Scenarios, column: str) -> None:
    view = scenarios.views(column)[0]
    for row in ROWS:
        _check_cell(view, row, column)


def _without_results(message: str) -> str:
    """Not every trial here reports a result, which a success says; how it ended is what is asked."""
    return message.removesuffix("it reported neither a final nor an intermediate result")


def _check_cell(view: View, row: str, column: str) -> None:
    (status, reason), asked = outcome(row, column), request(row, column)
    trial, message = view.trials[row], "" if status == GOOD else ROWS[row].message
    message += ROWS[row].suspicion + (ROWS[row].doubt if status == GOOD else "") if asked is None else ""
    told = _without_results(trial["message"]) if status == GOOD else trial["message"]
    assert (trial["status"], trial["reason"] or "", told) == (status, reason, message)
    assert (trial["stopRequest"], trial["wait"]) == (asked, None)
    _check_attempts(ROWS[row], trial, is_asked=column != "no request")
    state, why = view.rows[row]
    assert (state, _without_results(why)) == (status, reason_in_words(reason, message, trial["lastWords"], status))
    assert trial["lastWords"] == (ROWS[row].rule.get("stderr", "").strip() if status == "FAILED" else "")
    if column != "experiment stop":  # for the tuner, requeued trials have not ended: see below
        assert view.told(row, "ended") == [{"ended": trial["parameterId"], "success": status == GOOD}]
        final = [] if trial["finalResult"] is None else [json.loads(trial["finalResult"])]
        assert [note["value"] for note in view.told(row, "learned")] == final


def _check_attempts(row: Row, trial: Json, *, is_asked: bool) -> None:
    """Check that a stop request allows one attempt; check the evidence and the retry limit of each attempt."""
    attempts, count = trial["attempts"], 1 if is_asked else row.attempts
    assert (trial["attempt"], [attempt["number"] for attempt in attempts]) == (count, list(range(1, count + 1)))
    for attempt in attempts[: row.befalls]:
        assert row.attempt.items() <= attempt.items()
    assert all(attempt["state"] == GOOD for attempt in attempts[row.befalls :])
    assert [attempt["givenUp"] for attempt in attempts] == [row.account] * (count - 1) + [None]


@pytest.mark.parametrize("column", COLUMNS)
def test_experiment_state_of_a_column(scenarios: Scenarios, column: str) -> None:
    view = scenarios.views(column)[0]
    expected = [outcome(row, column)[0] for row in TABLE]
    assert view.state["counts"] == {status: expected.count(status) for status in expected}
    assert view.state["status"] == ("STOPPED" if column == "experiment stop" else "DONE")
    assert (view.state["hold"], view.state["errors"]) == (None, [])
    serious = re.findall(r'class="notice act[^>]*><p><span class="sentence">(.*?)</span>', view.page)
    assert all(" trials failed, " in sentence for sentence in serious), "nothing else wants a person"


def test_resume_requeues_trials_that_the_stop_ended(scenarios: Scenarios) -> None:
    stopped, resumed, over = scenarios.views("experiment stop")
    for row in [row for row in ROWS if row != "exit 0"]:
        before, waiting, after = (view.trials[row] for view in (stopped, resumed, over))
        assert before["id"] == waiting["id"] == after["id"]
        assert (waiting["status"], waiting["attempt"], waiting["stopRequest"]) == ("WAITING", 2, None)
        assert (waiting["parameters"], waiting["parameterSource"]) == (before["parameters"], "resumed")
        assert resumed.rows[row] == ("WAITING", waiting["wait"]["sentence"])
        told = _without_results(after["message"])
        assert (after["status"], told, after["attempt"]) == (GOOD, "", 2)
        assert over.rows[row] == (GOOD, "")
    assert over.trials["exit 0"] == stopped.trials["exit 0"]
    assert over.state["counts"] == {GOOD: len(ROWS) + 1}


def test_tuner_learns_of_requeued_trials_by_their_last_end(scenarios: Scenarios) -> None:
    """The tuner's next process, which did not propose these trials, gets each once, like results from elsewhere."""
    notes = scenarios.views("experiment stop")[-1].notes
    imported = [(entry["parameter"]["x"], entry["value"]) for note in notes for entry in note.get("imported", [])]
    assert imported[0] == ("exit 0", 0.5)
    assert sorted(imported[1:]) == [(row, 0.7) for row in sorted(ROWS) if row != "exit 0"]
    assert {note["ended"] for note in notes if note.get("success")} <= {0, len(ROWS)}


# Another attempt


def test_waiting_retry_shows_how_the_last_attempt_ended(scenarios: Scenarios) -> None:
    experiment = scenarios.experiment(
        "retry",
        ["first", "second"],
        {
            "trials": [
                {"match": {"sequence": 0, "attempt": 1}, "duration": 600, "preempted": True},
                {"match": {"sequence": 0}, "duration": 0, "result": 1},
                {"duration": 600},
            ]
        },
    )
    experiment.wait_for_count(RUNNING=2)
    experiment.change(trialConcurrency=1)
    experiment.cluster.end_jobs(sequence_id=0)
    experiment.wait_for_count(RUNNING=1, WAITING=1)
    view = experiment.view()
    sentence = f"attempt 1 ended (PREEMPTED: {DISPLACED}); the next attempt waits for a slot"
    trial = view.trials["first"]
    assert trial["wait"] == {"code": "RETRY", "sentence": sentence, "details": {}}
    assert (trial["attempt"], trial["reason"], trial["stopRequest"]) == (2, None, None)
    assert [attempt["givenUp"] for attempt in trial["attempts"]] == ["PLATFORM"]
    assert view.rows["first"] == ("WAITING", sentence)
    assert sentence in experiment.log()
    assert view.notes == []
    experiment.kill("second")
    experiment.wait("DONE")
    assert when_all_is_told(experiment, count=2).rows == {
        "first": (GOOD, ""),
        "second": ("USER_CANCELED", "a user ended it, cancelled on request (USER_REQUEST)"),
    }


def test_assessor_verdict_holds_when_the_next_attempt_is_refused(scenarios: Scenarios) -> None:
    gate = scenarios.folder / "verdict"
    cluster = {
        "trials": [
            {"match": {"attempt": 1}, "results": [0.1, 0.2], "duration": 600, "preempted": True},
            {"refuseSubmit": "no such queue", "delay": 12},
        ]
    }
    experiment = scenarios.experiment("late verdict", ["only"], cluster, assessor=stern_assessor(gate=str(gate)))
    experiment.cluster.wait_for_jobs(1)
    experiment.cluster.advance(UNTIL_FIRST_RESULT_S)
    until(gate.with_name("verdict-wanted").exists)
    experiment.cluster.end_jobs()
    until(lambda: [trial["attempt"] for trial in experiment.view().trials.values()] == [2])
    gate.touch()
    experiment.wait("DONE")
    view = when_all_is_told(experiment, count=1)
    assert view.rows["only"] == ("EARLY_STOPPED", "the assessor ended it early, no such queue (ASSESSOR)")
    assert view.trials["only"]["stopRequest"] == "ASSESSOR"
    assert [attempt["state"] for attempt in view.trials["only"]["attempts"]] == ["PREEMPTED", "FAILED"]
    assert view.notes == [{"ended": 0, "success": False}]


# The platform cannot be asked


def test_outage_changes_no_trial_for_half_a_minute(scenarios: Scenarios) -> None:
    before, at_first, later, after, over = scenarios.views("long outage")
    sentence = OUTAGE
    assert before.rows["left alone"] == at_first.rows["left alone"] == ("RUNNING", "")
    assert (at_first.state["hold"]["sentence"], at_first.state["errors"]) == (sentence, [sentence])
    assert sentence in at_first.page
    trial = later.trials["left alone"]
    assert (trial["status"], trial["message"]) == ("UNKNOWN", f"the platform cannot be asked: {sentence}")
    assert later.rows["left alone"] == ("UNKNOWN", trial["message"])
    assert later.notes == []
    assert (after.state["hold"], after.state["errors"]) == (None, [])
    assert after.rows["left alone"] == ("RUNNING", "")
    assert after.trials["left alone"]["startedMs"] == before.trials["left alone"]["startedMs"]
    assert over.rows["left alone"] == (GOOD, "")
    assert over.trials["left alone"]["attempt"] == 1
    assert over.told("left alone", "learned") == [{"learned": 0, "value": 1}]


def test_trial_killed_during_an_outage_ends_after_it(scenarios: Scenarios) -> None:
    *_, later, after, over = scenarios.views("long outage")
    assert (later.trials["killed"]["status"], later.trials["killed"]["stopRequest"]) == ("UNKNOWN", "USER")
    assert (
        after.rows["killed"]
        == over.rows["killed"]
        == ("USER_CANCELED", "a user ended it, cancelled on request (USER_REQUEST)")
    )
    assert over.told("killed", "ended") == [{"ended": 1, "success": False}]


@pytest.mark.parametrize("column", COLUMNS[1:])
def test_stop_request_during_an_outage_is_sent_after_it(scenarios: Scenarios, column: str) -> None:
    (asked, over), (status, reason) = scenarios.views(f"{column}, outage"), outcome("exit 3", column)
    assert asked.trials["only"]["stopRequest"] == request("exit 3", column)
    assert asked.rows["only"] == ("RUNNING", f"asked to stop: {request('exit 3', column)}")
    assert asked.state["status"] == ("STOPPING" if column == "experiment stop" else "NO_MORE_TRIAL")
    assert asked.state["hold"]["code"] == "PLATFORM_UNAVAILABLE"
    assert over.rows["only"] == (status, reason_in_words(reason, "cancelled on request", status=status))
    assert over.trials["only"]["attempts"][0]["state"] == "CANCELLED"
    assert over.state["counts"] == {status: 1}
    log = (scenarios.daemon.data / over.state["id"] / "log" / "nnimanager.log").read_text()
    assert f"could not be delivered; retrying: {OUTAGE}" in log


# A runner of another version


@pytest.mark.parametrize("column", COLUMNS)
def test_runner_of_another_version_fails_the_trial(scenarios: Scenarios, column: str) -> None:
    """A container restarts with another image: its first runner fits, its second does not."""
    notes = scenarios.folder / f"{column}, version.jsonl"
    fields = {"assessor": {"assessor": stern_assessor()}, "maxTrialDuration": {"maxTrialDuration": "1s"}}
    experiment = Cluster(
        scenarios.daemon,
        scenarios.code,
        1,
        tuner=listed_tuner(notes, ["only", "other"]),
        metricGrace="1s",
        **fields.get(column, {}),
    )
    experiment.start(0)
    stopping = _ask(experiment, column)
    status, answer = say(experiment.environments[0], "version", version="0.5.1", channel="push")
    sentence = answer["error"]
    assert status == 409 and "0.5.1" in sentence and protocol.VERSION in sentence
    state = scenarios.daemon.wait(experiment.id, "STOPPED" if stopping else "ERROR")
    if stopping:
        stopping.join()
    assert state["errors"] == [sentence]
    trial = experiment.trial(0)
    assert (trial["status"], trial["reason"], trial["message"]) == ("FAILED", "VERSION_MISMATCH", sentence)
    assert (trial["stopRequest"], trial["attempt"]) == (request("exit 3", column), 1)
    shown = user_views.trials_on(scenarios.daemon, experiment.id)[trial["id"]]
    assert shown == ("FAILED", reason_in_words("VERSION_MISMATCH", sentence))
    if not stopping:
        until(lambda: user_views.notes(notes) == [{"ended": trial["parameterId"], "success": False}])
        scenarios.daemon.call("POST", f"/experiments/{experiment.id}/stop")


def _ask(experiment: Cluster, column: str) -> threading.Thread | None:
    """Send the column's stop request; returns the thread that waits for the stopped experiment."""
    runner, thread = experiment.environments[0], None
    if column == "no request":
        return None
    cluster.register(runner)
    assert say(runner, "status", event="started", startedMs=None)[0] == 200
    if column == "user":
        experiment.daemon.call("POST", f"/experiments/{experiment.id}/trials/{experiment.trial_id(0)}/kill")
    elif column == "assessor":
        line = '{"type": "intermediate", "value": 0.1}'
        assert say(runner, "metrics", outbox="outbox/main.jsonl", start=0, end=len(line) + 1, lines=[line])[0] == 200
    elif column == "experiment stop":
        thread = threading.Thread(target=experiment.daemon.call, args=("POST", f"/experiments/{experiment.id}/stop"))
        thread.start()
    until(lambda: say(runner, "heartbeat", reporter=True)[1]["stop"])
    return thread
