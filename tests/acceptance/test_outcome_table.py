"""The table of trial outcomes, acted out: every evidence, whoever asked the trial to stop; what users see of it.

The acts go on at the same time (`outcome_stage`), the tests look at the pictures that were taken. Versions are posted
by hand, and nothing of that takes time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from nni_manager.domain.trial import reason_in_words
from tests.acceptance import cluster, seen
from tests.acceptance.acted_experiment import Json, Picture, listed_tuner, stern_assessor
from tests.acceptance.cluster import Cluster, say, until
from tests.acceptance.outcome_stage import OUTAGE, Stage, acting, when_all_is_told
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
from trial_runner import protocol

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(90), pytest.mark.xdist_group("outcome_table")]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with acting(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


# The cells


@pytest.mark.parametrize("column", COLUMNS)
def test_every_outcome_of_a_column(stage: Stage, column: str) -> None:
    picture = stage.pictures(column)[0]
    for row in ROWS:
        _check_cell(picture, row, column)


def _without_results(message: str) -> str:
    """Not every trial here reports a result, which a success says; how it ended is what is asked."""
    return message.removesuffix("it reported no final result, and no intermediate one")


def _check_cell(picture: Picture, row: str, column: str) -> None:
    (status, reason), asked = outcome(row, column), request(row, column)
    trial, message = picture.trials[row], "" if status == GOOD else ROWS[row].message
    message += ROWS[row].suspicion if asked is None else ""
    told = _without_results(trial["message"]) if status == GOOD else trial["message"]
    assert (trial["status"], trial["reason"] or "", told) == (status, reason, message)
    assert (trial["stopRequest"], trial["wait"]) == (asked, None)
    _check_attempts(ROWS[row], trial, is_asked=column != "nobody")
    state, why = picture.rows[row]
    assert (state, _without_results(why)) == (status, reason_in_words(reason, message, trial["lastWords"]))
    assert trial["lastWords"] == (ROWS[row].rule.get("stderr", "").strip() if status == "FAILED" else "")
    if column != "experiment stop":  # what is requeued has not ended for the tuner: see below
        assert picture.told(row, "ended") == [{"ended": trial["parameterId"], "success": status == GOOD}]
        final = [json.loads(trial["finalResult"])] if status == GOOD else []
        assert [note["value"] for note in picture.told(row, "learned")] == final


def _check_attempts(row: Row, trial: Json, *, is_asked: bool) -> None:
    """One when somebody asked; the evidence of each that it befell, and which account paid for the next."""
    attempts, count = trial["attempts"], 1 if is_asked else row.attempts
    assert (trial["attempt"], [attempt["number"] for attempt in attempts]) == (count, list(range(1, count + 1)))
    for attempt in attempts[: row.befalls]:
        assert row.attempt.items() <= attempt.items()
    assert all(attempt["state"] == GOOD for attempt in attempts[row.befalls :])
    assert [attempt["givenUp"] for attempt in attempts] == ["PLATFORM"] * (count - 1) + [None]


@pytest.mark.parametrize("column", COLUMNS)
def test_experiment_state_of_a_column(stage: Stage, column: str) -> None:
    picture = stage.pictures(column)[0]
    expected = [outcome(row, column)[0] for row in TABLE]
    assert picture.state["counts"] == {status: expected.count(status) for status in expected}
    assert picture.state["status"] == ("STOPPED" if column == "experiment stop" else "DONE")
    assert (picture.state["hold"], picture.state["errors"]) == (None, [])
    assert '<p class="notice error">' not in picture.page


def test_resume_requeues_trials_that_the_stop_ended(stage: Stage) -> None:
    stopped, resumed, over = stage.pictures("experiment stop")
    for row in [row for row in ROWS if row != "exit 0"]:
        before, waiting, after = (picture.trials[row] for picture in (stopped, resumed, over))
        assert before["id"] == waiting["id"] == after["id"]
        assert (waiting["status"], waiting["attempt"], waiting["stopRequest"]) == ("WAITING", 2, None)
        assert (waiting["parameters"], waiting["parameterSource"]) == (before["parameters"], "resumed")
        assert resumed.rows[row] == ("WAITING", waiting["wait"]["sentence"])
        told = _without_results(after["message"])
        assert (after["status"], told, after["attempt"]) == (GOOD, "", 2)
        assert over.rows[row] == (GOOD, "")
    assert over.trials["exit 0"] == stopped.trials["exit 0"]
    assert over.state["counts"] == {GOOD: len(ROWS) + 1}


def test_tuner_learns_of_requeued_trials_by_their_last_end(stage: Stage) -> None:
    """Its next process, which did not propose them, hears of each once, as of results from elsewhere."""
    notes = stage.pictures("experiment stop")[-1].notes
    imported = [(entry["parameter"]["x"], entry["value"]) for note in notes for entry in note.get("imported", [])]
    assert imported[0] == ("exit 0", 0.5)
    assert sorted(imported[1:]) == [(row, 0.7) for row in sorted(ROWS) if row != "exit 0"]
    assert {note["ended"] for note in notes if note.get("success")} <= {0, len(ROWS)}


# Another attempt


def test_waiting_retry_shows_how_the_last_attempt_ended(stage: Stage) -> None:
    played = stage.experiment(
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
    played.wait_for_count(RUNNING=2)
    played.change(trialConcurrency=1)
    played.cluster.end_jobs(sequence_id=0)
    played.wait_for_count(RUNNING=1, WAITING=1)
    picture = played.picture()
    sentence = f"attempt 1 ended (PREEMPTED: {DISPLACED}); the next one waits for a slot"
    trial = picture.trials["first"]
    assert trial["wait"] == {"code": "RETRY", "sentence": sentence, "details": {}}
    assert (trial["attempt"], trial["reason"], trial["stopRequest"]) == (2, None, None)
    assert [attempt["givenUp"] for attempt in trial["attempts"]] == ["PLATFORM"]
    assert picture.rows["first"] == ("WAITING", sentence)
    assert sentence in played.log()
    assert picture.notes == []
    played.kill("second")
    played.wait("DONE")
    assert when_all_is_told(played, count=2).rows == {
        "first": (GOOD, ""),
        "second": ("USER_CANCELED", "a user ended it, cancelled on request (USER_REQUEST)"),
    }


def test_assessor_verdict_holds_when_the_next_attempt_is_refused(stage: Stage) -> None:
    gate = stage.folder / "verdict"
    cluster = {
        "trials": [
            {"match": {"attempt": 1}, "results": [0.1, 0.2], "duration": 600, "preempted": True},
            {"refuseSubmit": "there is no such queue", "delay": 12},
        ]
    }
    played = stage.experiment("late verdict", ["only"], cluster, assessor=stern_assessor(gate=str(gate)))
    played.cluster.wait_for_jobs(1)
    played.cluster.advance(UNTIL_FIRST_RESULT_S)
    until(gate.with_name("verdict-wanted").exists)
    played.cluster.end_jobs()
    until(lambda: [trial["attempt"] for trial in played.picture().trials.values()] == [2])
    gate.touch()
    played.wait("DONE")
    picture = when_all_is_told(played, count=1)
    assert picture.rows["only"] == ("EARLY_STOPPED", "the assessor ended it early, there is no such queue (ASSESSOR)")
    assert picture.trials["only"]["stopRequest"] == "ASSESSOR"
    assert [attempt["state"] for attempt in picture.trials["only"]["attempts"]] == ["PREEMPTED", "FAILED"]
    assert picture.notes == [{"ended": 0, "success": False}]


# The platform cannot be asked


def test_outage_changes_no_trial_for_half_a_minute(stage: Stage) -> None:
    before, at_first, later, after, over = stage.pictures("long outage")
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


def test_trial_killed_during_an_outage_ends_after_it(stage: Stage) -> None:
    *_, later, after, over = stage.pictures("long outage")
    assert (later.trials["killed"]["status"], later.trials["killed"]["stopRequest"]) == ("UNKNOWN", "USER")
    assert (
        after.rows["killed"]
        == over.rows["killed"]
        == ("USER_CANCELED", "a user ended it, cancelled on request (USER_REQUEST)")
    )
    assert over.told("killed", "ended") == [{"ended": 1, "success": False}]


@pytest.mark.parametrize("column", COLUMNS[1:])
def test_stop_request_during_an_outage_is_sent_after_it(stage: Stage, column: str) -> None:
    (asked, over), (status, reason) = stage.pictures(f"{column}, outage"), outcome("exit 3", column)
    assert asked.trials["only"]["stopRequest"] == request("exit 3", column)
    assert asked.rows["only"] == ("RUNNING", f"asked to stop: {request('exit 3', column)}")
    assert asked.state["status"] == ("STOPPING" if column == "experiment stop" else "NO_MORE_TRIAL")
    assert asked.state["hold"]["code"] == "PLATFORM_UNAVAILABLE"
    assert over.rows["only"] == (status, reason_in_words(reason, "cancelled on request"))
    assert over.trials["only"]["attempts"][0]["state"] == "CANCELLED"
    assert over.state["counts"] == {status: 1}
    log = (stage.daemon.data / over.state["id"] / "log" / "nnimanager.log").read_text()
    assert f"could not be told to stop, it will be told again: {OUTAGE}" in log


# A runner of another version


@pytest.mark.parametrize("column", COLUMNS)
def test_runner_of_another_version_fails_the_trial(stage: Stage, column: str) -> None:
    """A container that is started anew with another image: its first runner fits, its second does not."""
    notes = stage.folder / f"{column}, version.jsonl"
    fields = {"assessor": {"assessor": stern_assessor()}, "maxTrialDuration": {"maxTrialDuration": "1s"}}
    played = Cluster(
        stage.daemon,
        stage.code,
        1,
        tuner=listed_tuner(notes, ["only", "other"]),
        metricGrace="1s",
        **fields.get(column, {}),
    )
    played.start(0)
    stopping = _ask(played, column)
    status, answer = say(played.environments[0], "version", version="0.5.1", channel="push")
    sentence = answer["error"]
    assert status == 409 and "0.5.1" in sentence and protocol.VERSION in sentence
    state = stage.daemon.wait(played.id, "STOPPED" if stopping else "ERROR")
    if stopping:
        stopping.join()
    assert state["errors"] == [sentence]
    trial = played.trial(0)
    assert (trial["status"], trial["reason"], trial["message"]) == ("FAILED", "VERSION_MISMATCH", sentence)
    assert (trial["stopRequest"], trial["attempt"]) == (request("exit 3", column), 1)
    page = seen.page(stage.daemon, f"/experiments/{played.id}")
    assert seen.trials_on(page)[trial["id"]] == ("FAILED", reason_in_words("VERSION_MISMATCH", sentence))
    if not stopping:
        until(lambda: seen.notes(notes) == [{"ended": trial["parameterId"], "success": False}])
        stage.daemon.call("POST", f"/experiments/{played.id}/stop")


def _ask(played: Cluster, column: str) -> threading.Thread | None:
    """The trial to stop, on behalf of whoever the column is about; answers who waits for the stopped experiment."""
    runner, thread = played.environments[0], None
    if column == "nobody":
        return None
    cluster.greet(runner)
    assert say(runner, "status", event="started", startedMs=None)[0] == 200
    if column == "user":
        played.daemon.call("POST", f"/experiments/{played.id}/trials/{played.trial_id(0)}/kill")
    elif column == "assessor":
        line = '{"type": "intermediate", "value": 0.1}'
        assert say(runner, "metrics", outbox="outbox/main.jsonl", start=0, end=len(line) + 1, lines=[line])[0] == 200
    elif column == "experiment stop":
        thread = threading.Thread(target=played.daemon.call, args=("POST", f"/experiments/{played.id}/stop"))
        thread.start()
    until(lambda: say(runner, "heartbeat", reporter=True)[1]["stop"])
    return thread
