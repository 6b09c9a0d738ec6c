"""Every decision, as tables: what is the picture, what should happen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nni_manager.domain.evidence import NEVER_HEARD, UNHEARD
from nni_manager.domain.experiment import ExperimentStatus, Hold, HoldCode, PlatformSpec
from nni_manager.domain.ids import job_name
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import WaitCode
from nni_manager.domain.trial import OpenTrial, StopRequest
from nni_manager.scheduler.planning.decisions import (
    AddTrial,
    Finish,
    Forget,
    GiveUpAttempt,
    HoldService,
    MarkUnknown,
    PutOnHold,
    RequestStop,
    SetStatus,
    SetWait,
    StartAttempt,
    StartTrial,
    Submit,
)
from nni_manager.scheduler.planning.plan import MAX_ASKED
from nni_manager.scheduler.planning.snapshot import ServiceState
from tests.scheduler.pictures import NOW, Plan, ended, experiment, hold, proposals, running, spec, trial, waiting

pytestmark = pytest.mark.unit

PENDING: dict[str, Any] = {"state": "PENDING", "wait": "SUBMITTED"}


# ------------------------------------------------------------------------------------------------ free slots


def test_proposals_become_trials_in_free_slots() -> None:
    found = Plan(running("aaaaa"), config=spec(trial_concurrency=3), proposals=proposals(4, 5, 6))
    assert [(r.trial_id, r.parameter_id) for r in found.records(AddTrial)] == [("new00", 4), ("new01", 5)]
    assert [(r.attempt.trial_id, r.attempt.number, r.attempt.job_name) for r in found.records(StartAttempt)] == [
        ("new00", 1, "nni_exp_exp1_trial_new00"),
        ("new01", 1, "nni_exp_exp1_trial_new01"),
    ]
    assert [(c.attempt.trial_id, c.sequence_id, c.record) for c in found.decisions.calls] == [
        ("new00", 1, found.records(AddTrial)[0].record),
        ("new01", 2, found.records(AddTrial)[1].record),
    ]


@pytest.mark.parametrize(
    ("here", "asked"),
    [
        ({}, 3),
        ({"asked": 1}, 2),
        ({"asked": 5}, 0),
        ({"ahead": 4}, 7),
        ({"ahead": 4, "asked": 2, "proposals": proposals(1)}, 4),
        ({"ahead": 2, "proposals": proposals(1, 2, 3, 4)}, 0),
        ({"ahead": 4, "proposals": proposals(1, 2, 3, 4)}, 3),
        ({"exhausted": True, "ahead": 4}, 0),
    ],
)
def test_tuner_is_asked_for_missing_proposals(here: dict[str, Any], asked: int) -> None:
    assert Plan(config=spec(trial_concurrency=3), **here).asked == asked


@pytest.mark.parametrize(
    ("here", "asked"),
    [
        ({}, MAX_ASKED),
        ({"ahead": 32}, MAX_ASKED),
        ({"asked": 200}, MAX_ASKED - 200),
        ({"asked": MAX_ASKED}, 0),
        ({"asked": MAX_ASKED + 1}, 0),
        ({"proposals": proposals(*range(MAX_ASKED))}, MAX_ASKED),  # they came, and the rest is asked for
    ],
)
def test_the_tuner_is_asked_for_some_hundreds_at_a_time(here: dict[str, Any], asked: int) -> None:
    assert Plan(config=spec(trial_concurrency=100_000), **here).asked == asked


@pytest.mark.parametrize(
    ("most", "made", "here", "started", "asked"),
    [
        (5, 4, {"ahead": 9}, 0, 1),
        (5, 4, {"proposals": proposals(1, 2)}, 1, 0),
        (5, 5, {"proposals": proposals(1)}, 0, 0),
        (5, 3, {"asked": 1, "ahead": 9}, 0, 1),
        (3, 7, {"ahead": 9}, 0, 0),
        (None, 7, {}, 0, 3),
    ],
)
def test_no_more_trials_than_allowed(
    most: int | None, made: int, here: dict[str, Any], started: int, asked: int
) -> None:
    row = experiment(next_sequence_id=made)
    found = Plan(row=row, config=spec(trial_concurrency=3, max_trial_number=most), **here)
    assert (len(found.records(AddTrial)), found.asked) == (started, asked)


def test_waiting_trials_come_before_new_ones() -> None:
    found = Plan(waiting("aaaaa", attempt=2), proposals=proposals(1, 2))
    assert found.submitted == ["aaaaa", "new00"]
    assert found.records(StartAttempt)[0].attempt.job_name == "nni_exp_exp1_trial_aaaaa-2"


def test_full_slots_take_nothing() -> None:
    found = Plan(running("aaaaa"), trial("bbbbb", **PENDING), waiting("ccccc"), proposals=proposals(1))
    assert found.decisions.calls == []
    (wait,) = found.records(SetWait)
    assert (wait.trial_id, wait.wait.code, wait.wait.sentence) == (
        "ccccc",
        WaitCode.CONCURRENCY,
        "all 2 slots of trialConcurrency are taken",
    )


def test_retried_trial_states_why_it_waits_for_slot() -> None:
    found = Plan(running("aaaaa"), trial("bbbbb", **PENDING), waiting("ccccc", wait="RETRY"))
    assert found.decisions.calls == found.records(SetWait) == []
    found = Plan(running("aaaaa"), waiting("ccccc", wait="RETRY"), row=experiment(hold=hold("INTERNAL")))
    assert [wait.wait.code for wait in found.records(SetWait)] == [WaitCode.HOLD]


def test_a_trial_that_is_tried_again_keeps_its_slot() -> None:
    found = Plan(ended("aaaaa", "LOST"), running("bbbbb"), proposals=proposals(1))
    assert found.submitted == []
    assert found.wake_at == NOW


def test_trial_waits_while_last_job_may_run() -> None:
    two = spec(platforms=tuple(PlatformSpec(name="fake", service=name, settings={}) for name in ("fake", "fake-2")))
    away = {"fake": ServiceState(away_since_ms=NOW, trouble="no route to host", retry_at_ms=NOW + 1000)}
    trials = waiting("aaaaa", attempt=2), waiting("bbbbb", attempt=2)
    found = Plan(*trials, config=two, services=away, left={"aaaaa": "fake"})
    assert found.submitted == ["bbbbb"]
    wait, other = found.records(SetWait)
    assert (wait.trial_id, wait.wait.code) == ("aaaaa", WaitCode.PLATFORM_UNAVAILABLE)
    assert wait.wait.sentence == "its last job may still run on fake: no route to host"
    assert (other.trial_id, other.wait.code) == ("bbbbb", WaitCode.SUBMITTED)
    assert Plan(*trials, config=two, services=away).submitted == ["aaaaa", "bbbbb"]


def test_trials_of_an_experiment_in_error_say_so() -> None:
    row = experiment("ERROR", error="the trial runner is version 0.5.1")
    found = Plan(waiting("aaaaa", wait="CONCURRENCY"), row=row)
    assert [(wait.wait.code, wait.wait.sentence) for wait in found.records(SetWait)] == [
        (WaitCode.HOLD, "the experiment cannot continue until it is resumed: the trial runner is version 0.5.1")
    ]


def test_lowered_concurrency_stops_no_trial() -> None:
    found = Plan(running("aaaaa"), running("bbbbb"), running("ccccc"), config=spec(trial_concurrency=1))
    assert found.decisions.calls == found.decisions.records == []


def test_intents_count_as_slots() -> None:
    found = Plan(trial("aaaaa", state="INTENT"), trial("bbbbb", state="INTENT"), waiting("ccccc"))
    assert found.submitted == ["aaaaa", "bbbbb"]


def test_an_ended_trials_slot_is_filled_at_once() -> None:
    found = Plan(ended("aaaaa"), running("bbbbb"), proposals=proposals(1))
    assert found.submitted == ["new00"]


# ------------------------------------------------------------------------------------------------ holds


@pytest.mark.parametrize("code", [code for code in HoldCode if code is not HoldCode.BAD_CREDENTIALS])
def test_nothing_new_starts_on_hold(code: str) -> None:
    row = experiment(hold=hold(code), next_sequence_id=2)
    found = Plan(running("aaaaa"), waiting("bbbbb"), row=row, proposals=proposals(1), ahead=3)
    assert found.decisions.calls == []
    assert [(w.wait.code, w.wait.sentence) for w in found.records(SetWait)] == [
        (WaitCode.HOLD, "the experiment is on hold: put it right")
    ]


def test_silent_tuner_is_a_hold() -> None:
    found = Plan(waiting("aaaaa"), proposals=proposals(1), tuner_trouble=hold("TUNER_SILENT"))
    assert found.decisions.calls == []
    assert found.records(SetWait)[0].wait.code is WaitCode.HOLD
    assert found.records(SetStatus) == []


@pytest.mark.parametrize(
    ("code", "submitted"),
    [
        ("TUNER_RAISED", ["aaaaa"]),
        ("SAME_FAILURE", ["aaaaa"]),
        ("BAD_CREDENTIALS", []),
        ("INTERNAL", []),
    ],
)
def test_intents_wait_only_for_user_actions(code: str, submitted: list[str]) -> None:
    found = Plan(trial("aaaaa", state="INTENT"), row=experiment(hold=hold(code), next_sequence_id=1))
    assert found.submitted == submitted


# ------------------------------------------------------------------------------------------------ platform trouble

AWAY: dict[str, Any] = {"trouble": "connection refused", "retry_at_ms": NOW + 500}


def test_a_platform_in_trouble_is_left_alone_until_its_time() -> None:
    found = Plan(trial("aaaaa", state="INTENT"), waiting("bbbbb"), proposals=proposals(1), **AWAY)
    assert found.decisions.calls == []
    assert found.wake_at == NOW + 500
    assert {(w.trial_id, w.wait.code, w.wait.sentence) for w in found.records(SetWait)} == {
        ("aaaaa", WaitCode.PLATFORM_UNAVAILABLE, "connection refused"),
        ("bbbbb", WaitCode.PLATFORM_UNAVAILABLE, "connection refused"),
    }


def test_intended_job_is_resubmitted_at_the_retry_time() -> None:
    found = Plan(trial("aaaaa", state="INTENT"), waiting("bbbbb"), **{**AWAY, "retry_at_ms": NOW})
    assert found.submitted == ["aaaaa", "bbbbb"]


def test_free_slots_alone_are_reason_enough_to_try_again() -> None:
    assert Plan(proposals=proposals(1), **AWAY).wake_at == NOW + 500


@pytest.mark.parametrize("retry_at", [0, NOW - 1, NOW])
def test_a_hold_and_trouble_together_do_not_spin(retry_at: int) -> None:
    row = experiment(hold=hold(), next_sequence_id=2)
    found = Plan(
        waiting("aaaaa", wait="HOLD"),
        trial("bbbbb", **PENDING),
        row=row,
        **{**AWAY, "retry_at_ms": retry_at, "away_since_ms": NOW - 60_000},
    )
    assert found.wake_at is None or found.wake_at > NOW


def test_platform_wait_reason_returns_after_an_outage() -> None:
    found = Plan(trial("aaaaa", state="PENDING", wait="PLATFORM_UNAVAILABLE"))
    (wait,) = found.records(SetWait)
    assert (wait.trial_id, wait.wait.code) == ("aaaaa", WaitCode.SUBMITTED)
    assert Plan(trial("aaaaa", **PENDING)).records(SetWait) == []


def test_an_intent_under_way_is_not_submitted_twice() -> None:
    found = Plan(trial("aaaaa", state="INTENT"), submitting=frozenset({"nni_exp_exp1_trial_aaaaa"}))
    assert found.submitted == []


def test_runner_report_before_the_handle_keeps_the_submission() -> None:
    """A crash came between the runner's first post and the platform's answer."""
    spoke = trial("aaaaa", "RUNNING", "RUNNING", handle=None, started=NOW)
    assert Plan(spoke).submitted == ["aaaaa"]
    assert Plan(spoke, submitting=frozenset({"nni_exp_exp1_trial_aaaaa"})).submitted == []
    assert Plan(running("aaaaa")).submitted == []


# ------------------------------------------------------------------------------------------------ stopping trials


@pytest.mark.parametrize(
    ("asked", "status", "reason"),
    [
        ("USER", "USER_CANCELED", "USER_REQUEST"),
        ("ASSESSOR", "EARLY_STOPPED", "ASSESSOR"),
        ("EXPERIMENT_STOPPED", "USER_CANCELED", "EXPERIMENT_STOPPED"),
    ],
)
def test_a_waiting_trial_that_was_asked_to_stop_ends(asked: str, status: str, reason: str) -> None:
    (finish,) = Plan(waiting("aaaaa", asked=asked)).records(Finish)
    assert (finish.status, finish.reason, finish.message, finish.ended_ms) == (
        status,
        reason,
        "it had not been submitted",
        NOW,
    )


def test_stopped_running_trial_is_cancelled_once() -> None:
    assert Plan(running("aaaaa", asked="USER")).cancelled == ["aaaaa"]
    sent = frozenset({"nni_exp_exp1_trial_aaaaa"})
    assert Plan(running("aaaaa", asked="USER"), cancelled=sent).cancelled == []


def test_stopped_intent_is_submitted_then_cancelled() -> None:
    found = Plan(trial("aaaaa", state="INTENT", asked="USER"))
    assert (found.submitted, found.cancelled) == (["aaaaa"], [])
    assert Plan(trial("aaaaa", asked="USER", **PENDING)).cancelled == ["aaaaa"]


def test_unknown_trial_with_stop_request_is_cancelled() -> None:
    assert Plan(trial("aaaaa", "UNKNOWN", "RUNNING", asked="USER"), away_since_ms=NOW - 99_000).cancelled == ["aaaaa"]


@pytest.mark.parametrize("sequence", range(2))
def test_stopping_requests_the_stop_of_all_trials(sequence: int) -> None:
    row = experiment("STOPPING", next_sequence_id=4)
    found = Plan(
        running("aaaaa"),
        trial("bbbbb", **PENDING),
        waiting("ccccc"),
        trial("ddddd", state="INTENT"),
        row=row,
        proposals=proposals(1),
        ahead=4,
    )
    assert [(r.trial_id, r.by) for r in found.records(RequestStop)] == [
        (id_, StopRequest.EXPERIMENT_STOPPED) for id_ in ("aaaaa", "bbbbb", "ddddd")
    ]
    assert found.cancelled == ["aaaaa", "bbbbb"]
    assert [(r.trial_id, r.reason) for r in found.records(Finish)] == [("ccccc", "EXPERIMENT_STOPPED")]
    assert (found.submitted, found.asked, found.records(AddTrial)) == (["ddddd"], 0, [])
    assert found.records(SetStatus) == []


def test_stopping_keeps_an_earlier_wish() -> None:
    found = Plan(running("aaaaa", asked="USER"), row=experiment("STOPPING", next_sequence_id=1))
    assert found.records(RequestStop) == []


def test_stopping_ends_when_the_last_trial_has() -> None:
    found = Plan(ended("aaaaa", "FAILED", asked="EXPERIMENT_STOPPED"), row=experiment("STOPPING", next_sequence_id=1))
    assert [(f.status, f.reason) for f in found.records(Finish)] == [("USER_CANCELED", "EXPERIMENT_STOPPED")]
    assert [r.status for r in found.records(SetStatus)] == ["STOPPED"]


def test_success_before_the_stop_counts() -> None:
    found = Plan(
        ended("aaaaa", "SUCCEEDED", asked="EXPERIMENT_STOPPED"), row=experiment("STOPPING", next_sequence_id=1)
    )
    assert found.records(Finish)[0].status == "SUCCEEDED"


# ------------------------------------------------------------------------------------------------ time


@pytest.mark.parametrize(
    ("started", "stopped", "wake_at"),
    [
        (NOW - 10_000, True, None),
        (NOW - 10_001, True, None),
        (NOW - 9_999, False, NOW + 1),
        (NOW, False, NOW + 10_000),
    ],
)
def test_max_trial_duration(started: int, stopped: bool, wake_at: int | None) -> None:
    found = Plan(running("aaaaa", started=started), config=spec(trial_concurrency=1, max_trial_duration_s=10))
    assert [r.by for r in found.records(RequestStop)] == ([StopRequest.TIMEOUT] if stopped else [])
    assert found.cancelled == (["aaaaa"] if stopped else [])
    assert found.wake_at == wake_at


def test_max_trial_duration_needs_observation_after_restart() -> None:
    """The clock may have been set meanwhile: by what is stored it has run for too long."""
    config = spec(trial_concurrency=1, max_trial_duration_s=10)
    trial_ = running("aaaaa", started=NOW - 3_600_000)
    assert Plan(trial_, config=config, heard=frozenset()).records(RequestStop) == []
    told = running("aaaaa", started=NOW - 3_600_000, started_ms=NOW - 9_000)
    found = Plan(told, config=config, heard=frozenset({job_name("exp1", "aaaaa", 1)}))
    assert (found.records(RequestStop), found.wake_at) == ([], NOW + 1000)


def test_ended_trial_has_the_last_reported_start() -> None:
    found = Plan(ended("aaaaa", started=NOW + 3_600_000, started_ms=NOW - 9_000, ended_ms=NOW))
    assert [r.started_ms for r in found.records(Finish)] == [NOW - 9_000]
    assert found.records(StartTrial) == []


def test_max_trial_duration_does_not_count_waiting() -> None:
    found = Plan(trial("aaaaa", **PENDING), config=spec(trial_concurrency=1, max_trial_duration_s=10))
    assert (found.records(RequestStop), found.wake_at) == ([], None)


@pytest.mark.parametrize(
    ("since", "status", "decided", "wake_at"),
    [
        (NOW - 29_999, "RUNNING", None, NOW + 1),
        (NOW - 30_000, "RUNNING", MarkUnknown, None),
        (NOW, "RUNNING", None, NOW + 30_000),
        (NOW - 40_000, "UNKNOWN", None, None),
        (None, "UNKNOWN", StartTrial, None),
        (None, "RUNNING", None, None),
    ],
)
def test_unknown_after_thirty_seconds_and_back(
    since: int | None, status: str, decided: type | None, wake_at: int | None
) -> None:
    found = Plan(
        trial("aaaaa", status, "RUNNING", started=5, started_ms=5),
        config=spec(trial_concurrency=1),
        away_since_ms=since,
        trouble="away" if since else "",
        retry_at_ms=NOW,
    )
    assert [type(record) for record in found.decisions.records] == ([decided] if decided else [])
    if decided is MarkUnknown:
        assert found.records(MarkUnknown)[0].sentence == "the platform cannot be asked: away"
    if decided is StartTrial:
        assert found.records(StartTrial)[0].started_ms == 5
    assert found.wake_at == wake_at


def test_unreachable_machine_is_not_an_unreachable_platform() -> None:
    away = {"unreachable_ms": NOW - 31_000, "unreachable": "node node-0 does not answer"}
    found = Plan(trial("aaaaa", "RUNNING", "RUNNING", started=5, started_ms=5, **away))
    (record,) = found.records(MarkUnknown)
    assert record.sentence == "its job's state is unknown: node node-0 does not answer"


def test_a_waiting_trial_never_becomes_unknown() -> None:
    found = Plan(trial("aaaaa", **PENDING), away_since_ms=0, trouble="away")
    assert found.records(MarkUnknown) == []
    assert [w.wait.code for w in found.records(SetWait)] == [WaitCode.PLATFORM_UNAVAILABLE]


def test_end_during_an_outage_counts() -> None:
    assert Plan(trial("aaaaa", "UNKNOWN", "SUCCEEDED")).records(Finish)[0].status == "SUCCEEDED"


@pytest.mark.parametrize(("reported", "started"), [(77, 77), (None, NOW)])
def test_a_trial_runs_since_its_job_does(reported: int | None, started: int) -> None:
    found = Plan(trial("aaaaa", state="RUNNING", started_ms=reported))
    assert [(r.trial_id, r.started_ms) for r in found.records(StartTrial)] == [("aaaaa", started)]


# ------------------------------------------------------------------------------------------------ attempts


@pytest.mark.parametrize(
    ("state", "spent", "allowed", "decided"),
    [
        ("LOST", (0, 0), 0, "PLATFORM"),
        ("LOST", (1, 0), 0, "PLATFORM"),
        ("LOST", (2, 0), 0, "SYS_CANCELED"),
        ("LOST", (0, 9), 0, "PLATFORM"),
        ("PREEMPTED", (2, 0), 5, "SYS_CANCELED"),
        ("CANCELLED", (0, 0), 0, "SYS_CANCELED"),
        ("FAILED", (0, 0), 0, "FAILED"),
        ("FAILED", (0, 0), 1, "USER_CODE"),
        ("FAILED", (2, 1), 2, "USER_CODE"),
        ("FAILED", (0, 2), 2, "FAILED"),
        ("SUCCEEDED", (2, 2), 0, "SUCCEEDED"),
    ],
)
def test_retries_are_paid_from_two_accounts(state: str, spent: tuple[int, int], allowed: int, decided: str) -> None:
    found = Plan(ended("aaaaa", state, exit_code=1), retries={"aaaaa": spent}, config=spec(max_trial_retries=allowed))
    records = [*found.records(Finish), *found.records(GiveUpAttempt)]
    assert [getattr(record, "account", None) or record.status for record in records] == [decided]
    assert found.forgotten == ["nni_exp_exp1_trial_aaaaa"]


LIMIT: dict[str, Any] = {"cause": "TIMEOUT", "message": "the limit of 1 h is over; raise timeLimit", "exit_code": 143}


@pytest.mark.parametrize(
    ("spent", "allowed", "decided"),
    [((0, 0), 0, "FAILED"), ((0, 0), 1, "USER_CODE"), ((9, 1), 2, "USER_CODE"), ((0, 2), 2, "FAILED")],
)
def test_time_limit_of_the_platform_counts_as_trial_retry(spent: tuple[int, int], allowed: int, decided: str) -> None:
    found = Plan(ended("aaaaa", "FAILED", **LIMIT), retries={"aaaaa": spent}, config=spec(max_trial_retries=allowed))
    (record,) = [*found.records(Finish), *found.records(GiveUpAttempt)]
    assert (getattr(record, "account", None) or record.status) == decided
    assert LIMIT["message"] in (record.message if isinstance(record, Finish) else record.sentence)


def test_time_limit_of_the_platform_keeps_final_result() -> None:
    (record,) = Plan(ended("aaaaa", "FAILED", **LIMIT, has_final=True)).records(Finish)
    assert (record.status, record.reason) == ("SUCCEEDED", "")
    assert LIMIT["message"] in record.message


def test_a_given_up_attempt_says_why_and_is_followed_at_once() -> None:
    found = Plan(ended("aaaaa", "LOST", attempt=2))
    (record,) = found.records(GiveUpAttempt)
    assert (record.attempt, record.sentence) == (
        2,
        "attempt 2 ended (LOST: its job was lost); the next attempt waits for a slot",
    )
    assert found.wake_at == NOW
    assert found.records(SetStatus) == []


def test_refused_job_is_not_forgotten() -> None:
    refused = ended("aaaaa", "FAILED", handle=None, cause="SUBMIT_REJECTED", message="no such queue", ended_ms=7)
    found = Plan(refused)
    (finish,) = found.records(Finish)
    assert (finish.status, finish.reason, finish.message, finish.ended_ms) == (
        "FAILED",
        "SUBMIT_REJECTED",
        "no such queue",
        7,
    )
    assert found.forgotten == []


@pytest.mark.parametrize("word", Reason)
def test_native_reason_equal_to_a_cause_decides_nothing(word: Reason) -> None:
    told = ended("aaaaa", "FAILED", exit_code=1, native_reason=word.value)
    assert outcome_of(Plan(told)) == ("FAILED", "USER_CODE")


# ------------------------------------------------------------------------------------------------ the same failure

FAILED = ("FAILED", "USER_CODE", "exit code 1")


@pytest.mark.parametrize(
    ("before", "now", "held"),
    [
        ([FAILED] * 4, 1, True),
        ([], 5, True),
        ([FAILED] * 3, 1, False),
        ([FAILED] * 3 + [("FAILED", "USER_CODE", "exit code 2")], 1, False),
        ([FAILED] * 3 + [("SUCCEEDED", "", "")], 1, False),
        ([FAILED] * 4, 3, True),
        ([FAILED] * 4, 0, False),
    ],
)
def test_the_first_five_failing_alike_hold_the_experiment(
    before: list[tuple[str, str, str]], now: int, held: bool
) -> None:
    known = [(f"b{n:04}", *words, "") for n, words in enumerate(before)]
    trials = [ended(f"t{n:04}", "FAILED", exit_code=1, stderr_tail=f"first\n\x1b[31mno file {n}\n") for n in range(now)]
    row = experiment(ended_trials=len(before), next_sequence_id=len(before) + now)
    found = Plan(*trials, row=row, first_ended=tuple(known), proposals=proposals(1))
    if not held:
        assert found.records(PutOnHold) == []
        return
    (record,) = found.records(PutOnHold)
    assert record.hold.code is HoldCode.SAME_FAILURE
    fifth = 4 - len(before)
    assert record.hold.sentence == (
        "the first 5 trials all failed in the same way: its command failed, exit code 1 (USER_CODE); its"
        f" stderr says: no file {fifth}; `nnictl log trial exp1 -T t{fifth:04}` shows the output of trial"
        f" t{fifth:04}; correct its code, then run `nnictl resume exp1`; another trialCommand needs a new"
        " experiment"
    )
    assert record.hold.details == f"first\n[31mno file {fifth}\n"
    assert found.submitted == [], "it holds from this very turn"


def test_a_reason_that_names_the_trial_is_the_same_for_all() -> None:
    names = [f"t{n:04}" for n in range(5)]
    words = "cannot make /data/exp1/trials/{0}: nni_exp_exp1_trial_{0} is not a name"
    known = tuple((name, "FAILED", "USER_CODE", words.format(name), "") for name in names[:4])
    report = {"message": words.format(names[4])}
    found = Plan(ended(names[4], "FAILED", **report), row=experiment(ended_trials=4), first_ended=known)
    assert [record.hold.code for record in found.records(PutOnHold)] == [HoldCode.SAME_FAILURE]


def test_made_up_names_of_pods_are_the_same_failure_for_all() -> None:
    """Kubernetes appends random characters, with and without digits, to the job's name."""
    row = experiment(next_sequence_id=5)
    ends = ["bqxwz", "x7kqz", "4tcdf", "zzzzz", "99999"]
    trials = [
        ended(f"t{n:04}", "FAILED", exit_code=1, message=f"pod nni-exp-exp1-trial-t{n:04}-{end}: no volume")
        for n, end in enumerate(ends)
    ]
    (record,) = Plan(*trials, row=row).records(PutOnHold)
    assert record.hold.code is HoldCode.SAME_FAILURE
    assert "its command failed, pod nni-exp-exp1-trial-t0004-99999: no volume (USER_CODE)" in record.hold.sentence


SAME = "USER_CODE, exit code 1: ValueError: # is not a rate"


def failing(count: int, words: str = "ValueError: 0.{} is not a rate") -> list[OpenTrial]:
    tail = "Traceback\n" + words + "\n"
    return [ended(f"t{n:04}", "FAILED", exit_code=1, stderr_tail=tail.format(n)) for n in range(count)]


@pytest.mark.parametrize(
    ("last", "now", "most", "held"),
    [
        ([SAME] * 9, 1, 10, True),
        ([""] + [SAME] * 8, 2, 10, True),
        ([SAME] * 8, 1, 10, False),
        ([SAME] * 8 + [""], 1, 10, False),
        ([SAME] * 8 + ["LOST: away"], 1, 10, False),
        ([], 3, 3, True),
        ([SAME] * 30, 3, 0, False),
        ([SAME] * 9, 0, 10, False),
    ],
)
def test_max_same_failures_in_a_row_hold_the_experiment(last: list[str], now: int, most: int, held: bool) -> None:
    row = experiment(ended_trials=50, next_sequence_id=50 + now)
    config = spec(max_same_failures=most)
    found = Plan(*failing(now), row=row, config=config, last_keys=tuple(last), proposals=proposals(1))
    assert [record.hold.code for record in found.records(PutOnHold)] == ([HoldCode.SAME_FAILURE] if held else [])
    assert bool(found.submitted) is not held


def test_hold_has_the_last_stderr_line_of_one_trial() -> None:
    row = experiment(ended_trials=50, next_sequence_id=51)
    (record,) = Plan(*failing(1), row=row, last_keys=(SAME,) * 9).records(PutOnHold)
    assert record.hold.sentence == (
        "10 trials in a row failed in the same way (maxSameFailures): its command failed, exit code 1 (USER_CODE);"
        " its stderr says: ValueError: 0.0 is not a rate; `nnictl log trial exp1 -T t0000` shows the output of trial"
        " t0000; correct its code, then run `nnictl resume exp1`; another trialCommand needs a new experiment"
    )


def test_platform_that_loses_all_jobs_holds_the_experiment() -> None:
    lost = ended("aaaaa", "LOST", message="node 7 is gone")
    (record,) = Plan(
        lost, row=experiment(ended_trials=50), retries={"aaaaa": (2, 0)}, last_keys=("LOST: node # is gone",) * 9
    ).records(PutOnHold)
    assert "its job was lost, node 7 is gone (LOST); `nnictl log trial" in record.hold.sentence
    assert "correct its code" not in record.hold.sentence


@pytest.mark.parametrize(("failed", "now", "held"), [(20, 1, True), (19, 2, True), (18, 2, False), (30, 0, False)])
def test_failure_above_max_failed_trials_holds_the_experiment(failed: int, now: int, held: bool) -> None:
    row = experiment(ended_trials=50, next_sequence_id=50 + now)
    found = Plan(*failing(now), row=row, config=spec(max_failed_trials=20), failed=failed)
    if not held:
        assert found.records(PutOnHold) == []
        return
    (record,) = found.records(PutOnHold)
    assert record.hold.code is HoldCode.TOO_MANY_FAILURES
    assert record.hold.sentence == (
        f"21 trials failed, but maxFailedTrials allows only 20; the last was trial t{now - 1:04}: its command failed,"
        f" exit code 1: ValueError: 0.{now - 1} is not a rate (USER_CODE); correct the cause, then run"
        " `nnictl resume exp1`, which restarts the count"
    )


def test_a_job_refused_for_good_holds_its_service_at_once() -> None:
    refused = ended("aaaaa", "FAILED", handle=None, cause="SUBMIT_REJECTED", message="/code is gone")
    found = Plan(refused, row=experiment(ended_trials=50), proposals=proposals(1))
    sentence = (
        "fake permanently refused the job of trial aaaaa: /code is gone; correct that, then run `nnictl resume exp1`"
    )
    hold = Hold(code=HoldCode.SUBMIT_REJECTED, sentence=sentence)
    assert found.records(HoldService) == [HoldService(service="fake", hold=hold)]
    assert found.records(PutOnHold) == [PutOnHold(hold=hold)]
    assert found.submitted == []


def test_the_other_services_go_on() -> None:
    platforms = tuple(PlatformSpec(name="fake", service=name, settings={}) for name in ("one", "two"))
    refused = ended("aaaaa", "FAILED", handle=None, cause="SUBMIT_REJECTED", message="/code is gone", service="one")
    found = Plan(refused, config=spec(platforms=platforms), proposals=proposals(1))
    assert [record.service for record in found.records(HoldService)] == ["one"]
    assert found.records(PutOnHold) == []
    assert [call.attempt.service for call in found.decisions.calls if isinstance(call, Submit)] == ["two"]


def test_function_of_other_python_holds_service_at_once() -> None:
    """However often trials may be tried again, and whatever its stderr says besides."""
    said = "the function was sent by Python 3.11, and this is Python 3.9 (/usr/bin/python3): put it into a module"
    refused = ended("aaaaa", "FAILED", exit_code=1, stderr_tail=f"noise\nnni_call: {said}\nmore noise\n")
    found = Plan(refused, config=spec(max_trial_retries=3), proposals=proposals(1))
    assert outcome_of(found) == ("FAILED", "OTHER_PYTHON")
    sentence = (
        f"fake ran trial aaaaa in another Python: {said};"
        " `nnictl resume exp1` continues when that version is installed there"
    )
    (record,) = found.records(HoldService)
    assert (record.service, record.hold.code, record.hold.sentence) == ("fake", HoldCode.OTHER_PYTHON, sentence)
    assert [held.hold.code for held in found.records(PutOnHold)] == [HoldCode.OTHER_PYTHON]
    assert found.submitted == []


@pytest.mark.parametrize("status", ["USER_CANCELED", "SYS_CANCELED"])
def test_other_ends_do_not_count_as_failures(status: str) -> None:
    before = tuple((f"b{n:04}", status, "", "x", "") for n in range(4))
    row = experiment(ended_trials=4, next_sequence_id=5)
    assert Plan(ended("aaaaa", "FAILED", message="x"), row=row, first_ended=before).records(PutOnHold) == []


# ------------------------------------------------------------------------------------------------ status


def status_after(*trials: Any, status: str = "RUNNING", made: int = 3, **changes: Any) -> str:
    row = experiment(status, next_sequence_id=made, exec_ms=changes.pop("exec_ms", 0))
    limits = {"max_trial_number": 3, **changes.pop("limits", {})}
    records = Plan(*trials, row=row, config=spec(**limits), **changes).records(SetStatus)
    return records[0].status if records else status


@pytest.mark.parametrize(
    ("before", "after", "picture"),
    [
        ("RUNNING", "NO_MORE_TRIAL", [running("aaaaa")]),
        ("NO_MORE_TRIAL", "NO_MORE_TRIAL", [running("aaaaa")]),
        ("NO_MORE_TRIAL", "NO_MORE_TRIAL", [ended("aaaaa"), running("bbbbb")]),
        ("NO_MORE_TRIAL", "DONE", [ended("aaaaa")]),
        ("NO_MORE_TRIAL", "DONE", []),
        ("NO_MORE_TRIAL", "NO_MORE_TRIAL", [ended("aaaaa", "LOST")]),
        ("NO_MORE_TRIAL", "NO_MORE_TRIAL", [waiting("aaaaa", attempt=2)]),
        ("RUNNING", "NO_MORE_TRIAL", [waiting("aaaaa")]),
        ("DONE", "RUNNING", [waiting("aaaaa")]),
        ("DONE", "DONE", []),
        ("ERROR", "ERROR", [running("aaaaa")]),
        ("STOPPING", "STOPPING", [running("aaaaa")]),
        ("STOPPING", "STOPPED", []),
        ("STOPPING", "STOPPED", [waiting("aaaaa")]),
    ],
)
def test_status_at_the_limit(before: str, after: str, picture: list[Any]) -> None:
    assert status_after(*picture, status=before) == after


def test_raised_limit_continues_experiment() -> None:
    assert status_after(running("aaaaa"), status="NO_MORE_TRIAL", limits={"max_trial_number": 9}) == "RUNNING"


@pytest.mark.parametrize(
    ("before", "after", "picture", "here"),
    [
        ("RUNNING", "TUNER_NO_MORE_TRIAL", [running("aaaaa")], {}),
        ("RUNNING", "RUNNING", [running("aaaaa"), running("bbbbb")], {"proposals": proposals(1)}),
        ("TUNER_NO_MORE_TRIAL", "TUNER_NO_MORE_TRIAL", [ended("aaaaa")], {}),
        ("TUNER_NO_MORE_TRIAL", "TUNER_NO_MORE_TRIAL", [], {"asked": 1}),
        ("TUNER_NO_MORE_TRIAL", "DONE", [], {}),
        ("TUNER_NO_MORE_TRIAL", "TUNER_NO_MORE_TRIAL", [waiting("aaaaa", attempt=2)], {}),
    ],
)
def test_status_of_an_exhausted_tuner(before: str, after: str, picture: list[Any], here: dict[str, Any]) -> None:
    assert status_after(*picture, status=before, limits={"max_trial_number": None}, exhausted=True, **here) == after


def test_tuner_with_new_proposals_continues_experiment() -> None:
    assert status_after(status="TUNER_NO_MORE_TRIAL", limits={"max_trial_number": None}) == "RUNNING"


@pytest.mark.parametrize(
    ("exec_ms", "counted_ms", "after", "wake_at"),
    [
        (5_000, NOW, "RUNNING", NOW + 5_001),
        (10_000, NOW, "RUNNING", NOW + 1),
        (9_000, NOW - 2_000, "NO_MORE_TRIAL", NOW),
        (10_001, NOW, "NO_MORE_TRIAL", NOW),
    ],
)
def test_max_experiment_duration(exec_ms: int, counted_ms: int, after: str, wake_at: int) -> None:
    row = experiment(exec_ms=exec_ms, counted_ms=counted_ms, next_sequence_id=2)
    found = Plan(
        running("aaaaa"), running("bbbbb"), row=row, config=spec(max_experiment_duration_s=10), proposals=proposals(1)
    )
    assert [r.status for r in found.records(SetStatus)] == ([] if after == "RUNNING" else [after])
    assert found.records(AddTrial) == []
    assert found.wake_at == wake_at


def test_time_on_hold_does_not_count() -> None:
    row = experiment(exec_ms=5_000, counted_ms=NOW - 60_000, next_sequence_id=1, hold=hold())
    found = Plan(running("aaaaa"), row=row, config=spec(max_experiment_duration_s=10))
    assert found.records(SetStatus) == [] and found.wake_at is None


def test_time_after_the_end_does_not_count() -> None:
    row = experiment("DONE", exec_ms=5_000, counted_ms=0, next_sequence_id=1)
    assert Plan(row=row, config=spec(max_experiment_duration_s=10)).decisions.records == []


@pytest.mark.parametrize("status", ["STOPPED", "VIEWED", "ERROR", "INITIALIZED"])
def test_inactive_experiment_starts_nothing(status: str) -> None:
    found = Plan(waiting("aaaaa", wait="CONCURRENCY"), row=experiment(status), proposals=proposals(1), ahead=5)
    assert found.decisions.calls == []
    reasons = [record.wait.code for record in found.records(SetWait)]
    assert reasons == (["HOLD"] if status == "ERROR" else [])


def test_a_done_experiment_asks_its_tuner_nothing() -> None:
    assert Plan(row=experiment("DONE"), ahead=5).asked == 0


def test_active_statuses() -> None:
    assert {s for s in ExperimentStatus if s.is_active} == {"RUNNING", "NO_MORE_TRIAL", "TUNER_NO_MORE_TRIAL"}


# ------------------------------------------------------------------------------------------------ two witnesses

GRACE_MS = 10_000
EXIT_0 = '{"exitCode": 0, "endedMs": 999500, "outboxes": {"outbox/main.jsonl": 70}}'
EXIT_3 = '{"exitCode": 3, "stderrTail": "Traceback"}'
SIGNAL_9 = '{"exitCode": null, "signal": 9}'


def with_runner(id: str, state: str = "RUNNING", said: str | None = None, ago_ms: int = 1, **more: Any) -> OpenTrial:
    """An attempt with a runner that pushes. `ago_ms`: how long ago the platform's end, or the runner's exit, was
    stored."""
    seen_ms = NOW - ago_ms if state not in ("RUNNING", "PENDING") else None
    said_ms = NOW - ago_ms if said is not None else None
    times = {"runner_exit": said, "runner_exit_ms": said_ms, "final_seen_ms": seen_ms}
    return ended(id, state, **{"channel": "push", **times, **more})


def outcome_of(found: Plan) -> tuple[str, str]:
    (record,) = found.records(Finish)
    return record.status, record.reason


def test_runner_exit_decides_once_all_results_are_stored() -> None:
    found = Plan(with_runner("aaaaa", said=EXIT_0), drained=("aaaaa",))
    (record,) = found.records(Finish)
    assert (record.status, record.ended_ms, record.disagreement) == ("SUCCEEDED", 999_500, "")
    assert found.forgotten == ["nni_exp_exp1_trial_aaaaa"]


def test_runner_exit_waits_for_the_handle() -> None:
    """Without a handle the platform could not be told to forget it: a daemon died before storing the handle."""
    job = "nni_exp_exp1_trial_aaaaa"
    found = Plan(with_runner("aaaaa", said=EXIT_0, handle=None), drained=("aaaaa",))
    assert (found.records(Finish), found.submitted) == ([], ["aaaaa"])
    under_way = Plan(with_runner("aaaaa", said=EXIT_0, handle=None), drained=("aaaaa",), submitting=frozenset({job}))
    assert (under_way.records(Finish), under_way.submitted) == ([], [])
    refused = Plan(with_runner("aaaaa", "FAILED", said=EXIT_0, handle=None), drained=("aaaaa",))
    assert outcome_of(refused)[0] == "SUCCEEDED"


def test_success_without_a_registered_runner_has_a_doubt() -> None:
    (record,) = Plan(with_runner("aaaaa", "SUCCEEDED", ago_ms=GRACE_MS)).records(Finish)
    assert (record.status, record.message, record.disagreement) == ("SUCCEEDED", UNHEARD, UNHEARD)
    (record,) = Plan(with_runner("aaaaa", "SUCCEEDED", ago_ms=GRACE_MS, channel="keeper")).records(Finish)
    assert (record.message, record.disagreement) == ("", "")


def heard(id: str, minutes: float, status: str = "RUNNING", **more: Any) -> Plan:
    """A container that only its runner's posts tell of, and when that was heard last."""
    told = trial(id, status, "RUNNING", channel="push", started=NOW - 9_000_000)
    silence = round(minutes * 60_000)
    return Plan(
        told, lives_by_runner=True, listening_ms=9_000_000, silent_ms={f"nni_exp_exp1_trial_{id}": silence}, **more
    )


def test_silent_runner_makes_its_trial_unknown_then_lost() -> None:
    assert (heard("aaaaa", 0.4).records(MarkUnknown), heard("aaaaa", 0.4).wake_at) == ([], NOW + 6_000)
    (record,) = heard("aaaaa", 0.5).records(MarkUnknown)
    assert record.sentence == "its runner does not report, and no other source shows whether it runs"
    waiting = heard("aaaaa", 9, "UNKNOWN")
    assert (waiting.decisions.records, waiting.wake_at) == ([], NOW + 60_000)
    (given_up,) = heard("aaaaa", 10, "UNKNOWN").records(GiveUpAttempt)
    assert given_up.account == "PLATFORM" and "did not report for 10 minutes" in given_up.sentence
    (finish,) = heard("aaaaa", 10, "UNKNOWN", retries={"aaaaa": (2, 0)}).records(Finish)
    assert (finish.status, finish.reason) == ("SYS_CANCELED", "LOST")


def test_unknown_trial_runs_after_a_new_heartbeat() -> None:
    (record,) = heard("aaaaa", 0.1, "UNKNOWN").records(StartTrial)
    assert record.trial_id == "aaaaa"


@pytest.mark.parametrize("here", [{}, {"silent_ms": {"nni_exp_exp1_trial_aaaaa": 9_000_000}}])
def test_silence_is_ignored_on_services_that_observe_jobs(here: dict[str, Any]) -> None:
    assert Plan(trial("aaaaa", "RUNNING", "RUNNING", channel="push", started=1), **here).decisions.records == []


def test_runner_read_from_storage_needs_no_heartbeat() -> None:
    told = trial("aaaaa", "RUNNING", "RUNNING", channel="pull", started=1)
    assert Plan(told, listening_ms=9_000_000).decisions.records == []


def test_restarted_daemon_restarts_silence() -> None:
    told = trial("aaaaa", "RUNNING", "RUNNING", channel="push", started=1)
    assert Plan(told, listening_ms=1_000).decisions.records == []


@pytest.mark.parametrize(
    ("exit_code", "channel", "has_runner", "reason"),
    [
        (77, "", True, "RUNNER_FAILED"),
        (64, "", True, "RUNNER_FAILED"),
        (1, "", True, "USER_CODE"),
        (77, "push", True, "USER_CODE"),
        (77, "", False, "USER_CODE"),
    ],
)
def test_exit_code_of_an_unregistered_runner(exit_code: int, channel: str, has_runner: bool, reason: str) -> None:
    told = with_runner("aaaaa", "FAILED", ago_ms=GRACE_MS, channel=channel, exit_code=exit_code)
    assert outcome_of(Plan(told, has_runner=has_runner, retries={"aaaaa": (2, 0)})) == ("FAILED", reason)


def test_a_runner_s_own_failure_costs_no_retry_of_the_user_s() -> None:
    word = json.dumps({"exitCode": 126, "signal": None, "wasStarted": False, "stderrTail": "no such shell"})
    told = with_runner("aaaaa", said=word)
    (record,) = Plan(told, drained=("aaaaa",), config=spec(max_trial_retries=1)).records(GiveUpAttempt)
    assert record.account == "PLATFORM" and "the trial runner did not start the command" in record.sentence


def test_undelivered_results_are_named_on_failed_trials() -> None:
    for code, message in ((0, "not everything was delivered: x"), (3, "exit code 3; not everything was delivered: x")):
        word = json.dumps({"exitCode": code, "signal": None, "undelivered": ["x"]})
        (record,) = Plan(with_runner("aaaaa", said=word), drained=("aaaaa",)).records(Finish)
        assert record.message == message


@pytest.mark.parametrize(
    ("channel", "here", "grace"),
    [
        ("push", {}, 1),
        ("pull", {}, 12),
        ("exec", {}, 1),
        ("", {"has_runner": True}, 1),
        ("", {"has_runner": True, "is_read": True}, 12),
    ],
)
def test_success_waits_longer_for_missing_results(channel: str, here: dict[str, bool], grace: int) -> None:
    """Storage may show results late; a failure loses less by not waiting, and its slot is needed."""
    for said in (None, EXIT_0):
        state = "RUNNING" if said else "SUCCEEDED"
        early = with_runner("aaaaa", state, said=said, ago_ms=grace * GRACE_MS - 1, channel=channel)
        assert Plan(early, **here).records(Finish) == []
        late = with_runner("aaaaa", state, said=said, ago_ms=grace * GRACE_MS, channel=channel)
        assert outcome_of(Plan(late, **here)) == ("SUCCEEDED", "")
    failed = with_runner("aaaaa", "FAILED", said=EXIT_3, exit_code=3, ago_ms=GRACE_MS, channel=channel)
    assert outcome_of(Plan(failed, **here))[0] == "FAILED"


def test_a_success_without_all_its_results_says_so() -> None:
    missing = {"aaaaa": {"outbox/main.jsonl": (20, 70), "outbox/2.jsonl": (0, 9)}}
    (record,) = Plan(with_runner("aaaaa", said=EXIT_0, ago_ms=GRACE_MS), missing=missing).records(Finish)
    assert "20 of 70 bytes of outbox/main.jsonl; 0 of 9 bytes of outbox/2.jsonl arrived in time" in record.message
    assert (record.status, record.disagreement) == ("SUCCEEDED", record.message)


def test_success_without_a_runner_exit_has_a_doubt() -> None:
    never = with_runner("aaaaa", "SUCCEEDED", channel="", ago_ms=12 * GRACE_MS)
    (record,) = Plan(never, has_runner=True, is_read=True).records(Finish)
    assert (record.status, record.message) == ("SUCCEEDED", NEVER_HEARD)


def test_trial_shows_doubts_of_store_and_runner() -> None:
    said = '{"exitCode": 0, "doubt": "its logs are not complete"}'
    (record,) = Plan(with_runner("aaaaa", said=said, doubt="a result was dropped"), drained=("aaaaa",)).records(Finish)
    assert record.message == "a result was dropped; its logs are not complete"


@pytest.mark.parametrize(
    ("further", "message"),
    [
        (0, ""),
        (1, "1 further final result was ignored: report once, from rank 0"),
        (2, "2 further final results were ignored: report once, from rank 0"),
    ],
)
def test_ended_trial_states_number_of_ignored_results(further: int, message: str) -> None:
    (record,) = Plan(ended("aaaaa", has_final=True, further_finals=further)).records(Finish)
    assert (record.message, record.disagreement) == (message, "")
    (record,) = Plan(ended("aaaaa", "FAILED", exit_code=1, has_final=True, further_finals=further)).records(Finish)
    assert record.message == "; ".join(filter(None, ("exit code 1", message)))


def test_results_on_their_way_are_waited_for() -> None:
    found = Plan(with_runner("aaaaa", said=EXIT_0, ago_ms=4_000))
    assert (found.records(Finish), found.forgotten, found.wake_at) == ([], [], NOW + 6_000)
    assert Plan(with_runner("aaaaa", said=EXIT_0, ago_ms=GRACE_MS - 1)).records(Finish) == []


def test_missing_results_are_awaited_for_a_limited_time() -> None:
    found = Plan(with_runner("aaaaa", said=EXIT_0, ago_ms=GRACE_MS))
    assert outcome_of(found) == ("SUCCEEDED", "")


@pytest.mark.parametrize(("grace_s", "settled"), [(0.0, True), (0.5, True), (1.0, True), (1.1, False), (600.0, False)])
def test_metric_grace_by_channel(grace_s: float, settled: bool) -> None:
    found = Plan(with_runner("aaaaa", said=EXIT_0, ago_ms=1_000), config=spec(metric_grace_s=grace_s))
    assert bool(found.records(Finish)) is settled


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED"])
def test_runner_exit_is_awaited_after_the_platform_end(state: str) -> None:
    assert Plan(with_runner("aaaaa", state, ago_ms=4_000)).wake_at == NOW + 6_000
    assert Plan(with_runner("aaaaa", state, ago_ms=GRACE_MS)).records(Finish)


@pytest.mark.parametrize("channel", ["", "keeper"])
def test_no_runner_exit_is_awaited_without_a_runner(channel: str) -> None:
    assert outcome_of(Plan(with_runner("aaaaa", "SUCCEEDED", channel=channel))) == ("SUCCEEDED", "")


@pytest.mark.parametrize("state", ["PREEMPTED", "LOST"])
def test_platform_caused_end_needs_no_runner_exit(state: str) -> None:
    (record,) = Plan(with_runner("aaaaa", state, ago_ms=GRACE_MS)).records(GiveUpAttempt)
    assert state in record.sentence
    assert Plan(with_runner("aaaaa", state, channel="")).records(GiveUpAttempt), "of no runner results are on their way"


@pytest.mark.parametrize("state", ["PREEMPTED", "LOST"])
def test_results_on_their_way_are_awaited_after_a_platform_end(state: str) -> None:
    found = Plan(with_runner("aaaaa", state, ago_ms=4_000))
    assert (found.records(GiveUpAttempt), found.records(Finish), found.wake_at) == ([], [], NOW + 6_000)


def test_results_are_not_awaited_after_a_stop_request() -> None:
    found = Plan(with_runner("aaaaa", "PREEMPTED", asked="USER", ago_ms=4_000))
    assert outcome_of(found) == ("USER_CANCELED", "USER_REQUEST")


@pytest.mark.parametrize(("channel", "ago_ms"), [("keeper", 0), ("pull", GRACE_MS)])
@pytest.mark.parametrize("state", ["PREEMPTED", "LOST"])
@pytest.mark.parametrize("spent", [0, 2])
def test_a_final_result_that_came_is_not_tried_again(state: str, spent: int, channel: str, ago_ms: int) -> None:
    told = with_runner("aaaaa", state, channel=channel, ago_ms=ago_ms, has_final=True, message="the node is gone")
    (record,) = Plan(told, retries={"aaaaa": (spent, 0)}).records(Finish)
    assert (record.status, record.reason) == ("SUCCEEDED", "")
    assert record.message == (
        "its end was not observed (the node is gone); it counts as successful, because its final result is stored"
    )


def test_foreign_signal_waits_for_the_platform_report() -> None:
    found = Plan(with_runner("aaaaa", said=SIGNAL_9, ago_ms=2_000), drained=("aaaaa",))
    assert (found.records(Finish), found.wake_at) == ([], NOW + 8_000)


def test_platform_report_explains_a_foreign_signal() -> None:
    told = with_runner("aaaaa", "PREEMPTED", said=SIGNAL_9)
    (record,) = Plan(told, drained=("aaaaa",)).records(GiveUpAttempt)
    assert "PREEMPTED" in record.sentence
    killed = with_runner("aaaaa", "FAILED", said=SIGNAL_9, native_reason="OOMKilled", cause="OUT_OF_MEMORY")
    assert outcome_of(Plan(killed, drained=("aaaaa",))) == ("FAILED", "OUT_OF_MEMORY")


@pytest.mark.parametrize("said", [SIGNAL_9, EXIT_3])
def test_platforms_sentence_on_memory_is_the_message(said: str) -> None:
    words = "the job exceeded its memory. Raise trialMemorySize."
    killed = with_runner("aaaaa", "FAILED", said=said, cause="OUT_OF_MEMORY", message=words)
    (record,) = Plan(killed, drained=("aaaaa",)).records(Finish)
    assert (record.reason, record.message) == ("OUT_OF_MEMORY", words)


def test_success_of_a_job_that_ran_out_of_memory_has_a_doubt() -> None:
    killed = with_runner("aaaaa", "FAILED", said=EXIT_0, cause="OUT_OF_MEMORY", message="too much", doubt="a gap")
    (record,) = Plan(killed, drained=("aaaaa",)).records(Finish)
    assert (record.status, record.message) == ("SUCCEEDED", "a process of its job was killed: too much; a gap")


def test_signal_without_platform_report_ends_after_wait() -> None:
    found = Plan(with_runner("aaaaa", said=SIGNAL_9, ago_ms=GRACE_MS), drained=("aaaaa",))
    (record,) = found.records(Finish)
    assert (record.status, record.reason) == ("FAILED", "USER_CODE") and "SIGKILL" in record.message


def test_a_signal_that_was_sent_from_here_needs_no_explanation() -> None:
    found = Plan(with_runner("aaaaa", said=SIGNAL_9, asked="USER"), drained=("aaaaa",))
    assert outcome_of(found) == ("USER_CANCELED", "USER_REQUEST")


@pytest.mark.parametrize(
    ("state", "said", "status"),
    [
        ("SUCCEEDED", EXIT_3, "FAILED"),
        ("FAILED", EXIT_0, "SUCCEEDED"),
        ("PREEMPTED", EXIT_0, "SUCCEEDED"),
        ("LOST", EXIT_0, "SUCCEEDED"),
    ],
)
def test_contradiction_is_recorded_with_both_reports(state: str, said: str, status: str) -> None:
    (record,) = Plan(with_runner("aaaaa", state, said=said), drained=("aaaaa",)).records(Finish)
    assert record.status == status
    assert (
        f"the platform reports {state}" in record.disagreement and "the runner reports exit code" in record.disagreement
    )


def test_contradiction_about_a_given_up_attempt_is_recorded() -> None:
    found = Plan(with_runner("aaaaa", "SUCCEEDED", said=EXIT_3), drained=("aaaaa",), config=spec(max_trial_retries=1))
    (record,) = found.records(GiveUpAttempt)
    assert "the platform reports SUCCEEDED" in record.disagreement


@pytest.mark.parametrize(("state", "word"), [("RUNNING", EXIT_0), ("SUCCEEDED", ""), ("LOST", "")])
def test_platform_can_confirm_runners_report(state: str, word: str) -> None:
    found = Plan(with_runner("aaaaa", state, said=EXIT_0), drained=("aaaaa",))
    (call,) = [call for call in found.decisions.calls if isinstance(call, Forget)]
    assert call.runner_exit == word


def test_runner_stderr_determines_the_reason() -> None:
    said = '{"exitCode": 1, "stderrTail": "torch.cuda.OutOfMemoryError: CUDA out of memory"}'
    found = Plan(with_runner("aaaaa", "FAILED", said=said, exit_code=1), drained=("aaaaa",))
    assert outcome_of(found) == ("FAILED", "GPU_OUT_OF_MEMORY")


def test_a_trial_that_waits_for_the_rest_keeps_its_slot() -> None:
    found = Plan(with_runner("aaaaa", said=EXIT_0), config=spec(trial_concurrency=1), proposals=proposals(1))
    assert found.submitted == []


def test_runner_of_other_version_stops_experiment() -> None:
    sentence = "the trial runner is version 0.5.1, this manager is 0.6.0"
    refused = ended("aaaaa", "FAILED", cause="VERSION_MISMATCH", message=sentence)
    found = Plan(refused, running("bbbbb"), waiting("ccccc"), config=spec(trial_concurrency=9, max_trial_retries=5))
    assert outcome_of(found) == ("FAILED", "VERSION_MISMATCH")
    assert found.records(Finish)[0].message == sentence
    assert found.records(SetStatus) == [SetStatus(status=ExperimentStatus.ERROR, error=sentence)]
    assert found.cancelled == [], "the other trials are left as they are"


def test_version_mismatch_error_starts_no_trials() -> None:
    found = Plan(running("bbbbb"), waiting("ccccc"), row=experiment("ERROR"), proposals=proposals(1))
    assert (found.submitted, found.records(SetStatus)) == ([], [])


def test_a_version_that_does_not_fit_is_not_put_down_to_the_user() -> None:
    refused = ended("aaaaa", "FAILED", cause="VERSION_MISMATCH", message="0.5.1", asked="USER")
    assert outcome_of(Plan(refused)) == ("FAILED", "VERSION_MISMATCH")
