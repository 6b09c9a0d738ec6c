"""Several training services of one experiment: placement of the next trial, and wait reasons."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nni_manager.domain.experiment import ExperimentSpec, PlatformSpec
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.domain.trial import OpenTrial
from nni_manager.scheduler.planning.decisions import (
    AddTrial,
    Cancel,
    Finish,
    Forget,
    GiveUpAttempt,
    MarkLost,
    PutOnHold,
    SetWait,
    StartAttempt,
    Submit,
)
from nni_manager.scheduler.planning.snapshot import ServiceState
from tests.scheduler.pictures import (
    NOW,
    Plan,
    experiment,
    hold,
    proposals,
    running,
    service_state,
    spec,
    trial,
    waiting,
)

pytestmark = pytest.mark.unit

GPU = Wait(code=WaitCode.GPU, sentence="gpu 0 on hostA busy", details={"machine": "hostA", "gpu": 0})


def two(concurrency: int = 4, **limits: int) -> ExperimentSpec:
    """Services `a` and `b`, with limits of their own where `limits` names them."""
    platforms = tuple(
        PlatformSpec(name="fake", service=name, settings={"trialConcurrency": limits[name]} if name in limits else {})
        for name in ("a", "b")
    )
    return spec(trial_concurrency=concurrency, platforms=platforms)


def places(found: Plan) -> dict[str, str]:
    """Trial → service of what is submitted."""
    return {call.attempt.trial_id: call.attempt.service for call in found.decisions.calls if isinstance(call, Submit)}


def reasons(found: Plan) -> dict[str, tuple[str, str]]:
    return {record.trial_id: (record.wait.code, record.wait.sentence) for record in found.records(SetWait)}


def on(service: str, id: str, **more: Any) -> OpenTrial:
    return running(id, service=service, **more)


def test_next_service_has_the_fewest_open_attempts() -> None:
    found = Plan(on("a", "aaaaa"), waiting("bbbbb"), waiting("ccccc"), waiting("ddddd"), config=two(concurrency=9))
    assert places(found) == {"bbbbb": "b", "ccccc": "a", "ddddd": "b"}
    assert {r.attempt.trial_id: r.attempt.service for r in found.records(StartAttempt)} == places(found)


@pytest.mark.parametrize(
    "state",
    [
        {"services": {"a": ServiceState(away_since_ms=0, trouble="away", retry_at_ms=NOW + 9)}},
        {"services": {"a": ServiceState(is_ready=False)}},
        {"services": {"a": ServiceState(free=0, full=GPU)}},
        {"holds": {"a": hold("BAD_CREDENTIALS")}},
    ],
)
def test_full_service_leaves_trials_to_others(state: dict[str, Any]) -> None:
    assert places(Plan(waiting("bbbbb"), waiting("ccccc"), config=two(), **state)) == {"bbbbb": "b", "ccccc": "b"}


def test_no_service_gets_more_than_its_own_limit_or_its_room() -> None:
    trials = [waiting(name * 5) for name in "cdef"]
    assert places(Plan(on("a", "aaaaa"), *trials, config=two(9, a=1, b=2))) == {"ccccc": "b", "ddddd": "b"}
    rooms = {"a": ServiceState(free=1), "b": ServiceState(free=2)}
    assert sorted(places(Plan(*trials, config=two(9), services=rooms)).values()) == ["a", "b", "b"]


def test_an_intent_stays_with_its_service() -> None:
    found = Plan(trial("aaaaa", state="INTENT", service="b", intended_ms=5), on("b", "bbbbb"), config=two())
    (submit,) = [call for call in found.decisions.calls if isinstance(call, Submit)]
    assert (submit.attempt.service, submit.is_repeat, submit.attempt.intended_ms) == ("b", True, 5)
    away = {"b": ServiceState(away_since_ms=0, trouble="away", retry_at_ms=NOW + 9)}
    assert places(Plan(trial("aaaaa", state="INTENT", service="b"), config=two(), services=away)) == {}


def test_trials_without_room_are_added_with_a_wait_reason() -> None:
    full = {"a": ServiceState(free=0, full=GPU), "b": ServiceState(free=0, full=GPU)}
    found = Plan(proposals=proposals(1, 2, 3), config=two(concurrency=2), services=full)
    assert len(found.records(AddTrial)) == 2
    assert places(found) == {}
    assert {code for code, _ in reasons(found).values()} == {"GPU"}
    assert found.decisions.wants == {"a": 2, "b": 2}


def test_trial_waiting_for_a_slot_wants_no_room() -> None:
    found = Plan(on("a", "aaaaa"), on("b", "bbbbb"), waiting("ccccc"), config=two(concurrency=2))
    assert found.decisions.wants == {}
    assert reasons(found)["ccccc"][0] == "CONCURRENCY"


def test_wait_reason_joins_the_reasons_of_all_services() -> None:
    states = {
        "a": ServiceState(free=0, full=GPU),
        "b": ServiceState(away_since_ms=0, trouble="no answer from b", retry_at_ms=NOW + 9),
    }
    found = Plan(waiting("aaaaa"), config=two(), services=states)
    assert reasons(found)["aaaaa"] == ("GPU", "a: gpu 0 on hostA busy; b: no answer from b")
    (record,) = found.records(SetWait)
    assert record.wait.details["a"] == {"code": "GPU", "machine": "hostA", "gpu": 0}


def test_retry_keeps_its_wait_reason() -> None:
    full = {"a": ServiceState(free=0, full=GPU), "b": ServiceState(free=0, full=GPU)}
    assert reasons(Plan(waiting("aaaaa", wait="RETRY"), config=two(), services=full)) == {}


def test_platform_wait_reason_is_updated_once_a_second() -> None:
    pending: dict[str, Any] = {"state": "PENDING", "wait_code": "UNSCHEDULABLE", "wait_details": "{}"}
    first = Plan(trial("aaaaa", wait="SUBMITTED", wait_sentence="0/3 nodes", **pending))
    assert reasons(first)["aaaaa"] == ("UNSCHEDULABLE", "0/3 nodes")
    changed = trial("aaaaa", wait="UNSCHEDULABLE", wait_ms=NOW - 400, wait_sentence="0/4 nodes", **pending)
    soon = Plan(changed)
    assert (reasons(soon), soon.wake_at) == ({}, NOW + 600)
    assert reasons(Plan(changed._replace(wait_ms=NOW - 1000)))["aaaaa"] == ("UNSCHEDULABLE", "0/4 nodes")


def test_the_same_sentence_with_other_details_is_news() -> None:
    pending: dict[str, Any] = {"state": "PENDING", "wait_code": "GPU", "wait_sentence": GPU.sentence}
    job = trial("aaaaa", wait="GPU", wait_details=json.dumps(GPU.details), **pending)._replace(
        wait_sentence=GPU.sentence, wait_details=json.dumps(GPU.details)
    )
    assert reasons(Plan(job)) == {}
    assert reasons(Plan(job._replace(wait_details="{}")))["aaaaa"][0] == "GPU"


def test_unreachable_job_becomes_unknown_alone() -> None:
    found = Plan(
        on("a", "aaaaa", unreachable_ms=NOW - 30_000, unreachable="hostA does not answer"),
        on("a", "bbbbb"),
        config=two(),
    )
    assert [type(record).__name__ for record in found.decisions.records] == ["MarkUnknown"]
    assert "hostA does not answer" in found.decisions.records[0].sentence  # type: ignore[union-attr]


def test_unreachable_job_is_lost_after_grace_of_service() -> None:
    graces = {"a": service_state(unreachable_grace_s=600)}
    waits = Plan(on("a", "aaaaa", unreachable_ms=NOW - 599_000, unreachable="away"), config=two(), services=graces)
    assert waits.wake_at == NOW + 1000
    lost = Plan(on("a", "aaaaa", unreachable_ms=NOW - 600_000, unreachable="away"), config=two(), services=graces)
    said, given_up = lost.decisions.records[:2]
    assert said == MarkLost(trial_id="aaaaa", attempt=1, message="not reachable for 600 s: away", ended_ms=NOW)
    assert isinstance(given_up, GiveUpAttempt)
    assert not [call for call in lost.decisions.calls if isinstance(call, Forget)], "what it reported is kept there"
    job = on("a", "aaaaa", unreachable_ms=NOW - 600_000, unreachable="away")
    last = Plan(job, config=two(), services=graces, retries={"aaaaa": (2, 0)})
    assert [call.service for call in last.decisions.calls if isinstance(call, Forget)] == ["a"]


def test_killed_trial_on_a_dead_node_ends_when_lost() -> None:
    """Its command may still run, so the slot stays taken."""

    def after(unreachable_s: int) -> list[tuple[str, str]]:
        job = on("a", "aaaaa", asked="USER", unreachable_ms=NOW - unreachable_s * 1000, unreachable="away")
        found = Plan(job, config=two(), services={"a": service_state(unreachable_grace_s=600)})
        return [(end.status, end.reason) for end in found.records(Finish)]

    assert after(599) == []
    assert after(600) == [("USER_CANCELED", "USER_REQUEST")]


def test_a_stop_reaches_each_jobs_own_service() -> None:
    found = Plan(on("a", "aaaaa"), on("b", "bbbbb"), row=experiment("STOPPING"), config=two(), stopping_since_ms=NOW)
    assert [call.service for call in found.decisions.calls if isinstance(call, Cancel)] == ["a", "b"]


@pytest.mark.parametrize(
    ("state", "job", "after_ms"),
    [
        (ServiceState(away_since_ms=0, trouble="no answer"), {}, 5_000),
        (ServiceState(), {"unreachable_ms": NOW - 9000, "unreachable": "no answer"}, 8_000),
    ],
)
def test_stopping_experiment_does_not_wait_for_unreachable_jobs(
    state: ServiceState, job: dict[str, Any], after_ms: int
) -> None:
    def at(stopping_ms: int) -> Plan:
        return Plan(
            on("a", "aaaaa", asked="EXPERIMENT_STOPPED", **job),
            row=experiment("STOPPING"),
            config=two(),
            services={"a": state},
            stopping_since_ms=stopping_ms,
        )

    assert at(NOW - after_ms + 1).records(Finish) == []
    (finish,) = at(NOW - after_ms).records(Finish)
    assert (finish.status, finish.reason, finish.may_run) == ("USER_CANCELED", "EXPERIMENT_STOPPED", True)
    assert finish.message == "may still run on a: no answer"


@pytest.mark.parametrize(
    ("state", "job"),
    [
        ({"away_since_ms": NOW - 5_000}, {}),
        ({"is_ready": False, "away_since_ms": NOW - 5_000}, {}),
        ({}, {"unreachable_ms": NOW - 8_000, "unreachable": "no answer"}),
    ],
)
@pytest.mark.parametrize(
    ("asked", "ends"),
    [
        ("USER", ("USER_CANCELED", "USER_REQUEST")),
        ("TIMEOUT", ("EARLY_STOPPED", "TIMEOUT")),
        ("", None),
    ],
)
def test_stop_on_a_removed_service_does_not_wait_for_it(
    state: dict[str, Any], job: dict[str, Any], asked: str, ends: tuple[str, str] | None
) -> None:
    def at(now_ms: int, service: str = "gone") -> Plan:
        return Plan(
            on(service, "aaaaa", asked=asked, **job),
            config=two(),
            now_ms=now_ms,
            services={service: ServiceState(trouble="no answer", **state)},
        )

    assert at(NOW - 1).records(Finish) == [], "it may come back in a moment"
    assert at(NOW, "a").records(Finish) == [], "one that was not removed is waited for"
    found = at(NOW)
    if ends is None:
        assert found.records(Finish) == [], "it runs to its end there"
        return
    (finish,) = found.records(Finish)
    assert (finish.status, finish.reason, finish.may_run) == (*ends, True)
    assert finish.message.startswith("may still run on gone: no answer")
    assert [call.service for call in found.decisions.calls if isinstance(call, Forget)] == ["gone"], "when it is back"


def test_a_removed_service_that_is_being_connected_is_waited_for() -> None:
    """As when the daemon has just started."""
    connecting = {"gone": ServiceState(is_ready=False, trouble="it is being connected")}
    assert Plan(on("gone", "aaaaa", asked="USER"), config=two(), services=connecting).records(Finish) == []


def test_the_experiment_is_on_hold_when_all_its_services_are() -> None:
    holds = {"a": hold("BAD_CREDENTIALS"), "b": hold("INTERNAL")}
    assert Plan(config=two(), holds={"a": holds["a"]}).records(PutOnHold) == []
    assert [record.hold for record in Plan(config=two(), holds=holds).records(PutOnHold)] == [holds["a"]]
    again = Plan(config=two(), holds=holds, row=experiment(hold=holds["a"]))
    assert again.records(PutOnHold) == []


TRIED = {"a": ServiceState(is_tried=True), "b": ServiceState()}


def test_service_on_hold_for_credentials_gets_one_try() -> None:
    held = hold("BAD_CREDENTIALS")
    row = experiment(hold=held, next_sequence_id=3)
    trials = [waiting("aaaaa"), waiting("bbbbb")]
    both = {"a": held, "b": held}
    found = Plan(*trials, config=two(9), holds=both, services=TRIED, row=row)
    assert places(found) == {"aaaaa": "a"}
    assert reasons(found)["bbbbb"][0] == "HOLD" and found.records(PutOnHold) == []
    assert places(Plan(*trials, config=two(9), holds=both, row=row)) == {}


@pytest.mark.parametrize("code", ["INTERNAL", "SAME_FAILURE"])
def test_service_that_needs_the_user_is_not_tried(code: str) -> None:
    row = experiment(hold=hold(code), next_sequence_id=3)
    credentials = hold("BAD_CREDENTIALS")
    holds = {"a": credentials, "b": credentials}
    assert places(Plan(waiting("aaaaa"), config=two(9), holds=holds, services=TRIED, row=row)) == {}
    held = {"a": hold(code), "b": credentials}
    assert places(Plan(waiting("aaaaa"), config=two(9), holds=held, services=TRIED)) == {}


def test_foreign_signal_waits_for_the_report_of_a_portal() -> None:
    def ended(exit_code: int, *, has_portal: bool, ago_ms: int = 0) -> Plan:
        word = json.dumps({"exitCode": exit_code, "outboxes": {}})
        job = on("a", "aaaaa", runner_exit=word, runner_exit_ms=NOW - ago_ms, channel="push")
        return Plan(job, config=two(), services={"a": service_state(has_portal=has_portal)}, drained=("aaaaa",))

    assert ended(143, has_portal=True).records(Finish) == []
    assert ended(137, has_portal=True).records(Finish) == []
    assert ended(143, has_portal=True, ago_ms=119_000).records(Finish) == []
    assert ended(143, has_portal=True, ago_ms=120_000).records(Finish) != []
    assert ended(143, has_portal=False).records(Finish) != []
    assert ended(1, has_portal=True).records(Finish) != []


def test_runner_exit_alone_does_not_end_a_restartable_job() -> None:
    word = json.dumps({"exitCode": 1, "outboxes": {}})
    job = on("a", "aaaaa", runner_exit=word, runner_exit_ms=NOW - 99_000, channel="push")
    found = Plan(job, config=two(), services={"a": service_state(platform_decides=True)}, drained=("aaaaa",))
    assert found.records(Finish) == []
