"""Jobs that their platform will never start: the hold of their service, how it begins and how it ends."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.experiment import ExperimentStatus, Hold, HoldCode, PlatformSpec
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.domain.space.parameters import Proposal
from nni_manager.domain.trial import StopRequest
from nni_manager.scheduler.planning.decisions import (
    HoldService,
    PutOnHold,
    SetWait,
    StartTrial,
)
from nni_manager.scheduler.planning.snapshot import ProcessState, ServiceState
from nni_manager.scheduler.turns.turn import Result, Seen, take_turn
from nni_manager.store.experiment import experiments, jobs, services, trials
from tests.scheduler.pictures import NOW, Plan, experiment, hold, proposals, running, spec, trial

pytestmark = pytest.mark.unit

NEVER = "the account has no right to partition gpu"
SENTENCE = (
    f"fake will never start the job of trial aaaaa as it is: {NEVER}. Correct the cause there; the hold ends when the"
    " job starts. Or change or replace the service with `nnictl update platform exp1 --file FILE`, then end the waiting"
    " trial with `nnictl trial kill exp1 -T aaaaa`"
)
HELD = Hold(code=HoldCode.NEVER_STARTS, sentence=SENTENCE)
TWO = spec(platforms=tuple(PlatformSpec(name="fake", service=name, settings={}) for name in ("fake", "two")))


def hopeless(id: str = "aaaaa", since_ms: int | None = NOW - 60_000, state: str = "PENDING", **changes: Any) -> Any:
    fields: dict[str, Any] = {"wait": "QUOTA", "wait_code": "QUOTA", "wait_sentence": NEVER, "hopeless_ms": since_ms}
    return trial(id, state=state, **{**fields, **changes})


# ------------------------------------------------------------------------------------------------ the hold begins


def test_hopeless_job_holds_its_service_after_a_minute() -> None:
    found = Plan(hopeless(), config=TWO, proposals=proposals(1, 2))
    assert found.records(HoldService) == [HoldService(service="fake", hold=HELD)]
    assert found.records(PutOnHold) == [], "the experiment goes on"
    assert [start.attempt.service for start in found.decisions.calls if hasattr(start, "attempt")] == ["two"]


def test_hopeless_job_waits_for_its_minute() -> None:
    found = Plan(hopeless(since_ms=NOW - 59_000), config=TWO)
    assert found.records(HoldService) == []
    assert found.wake_at == NOW + 1_000


def test_experiment_is_held_if_all_services_are() -> None:
    found = Plan(hopeless(), running("bbbbb"), config=spec(trial_concurrency=4), proposals=proposals(1))
    assert found.records(PutOnHold) == [PutOnHold(hold=HELD)]
    assert (found.submitted, found.cancelled) == ([], []), "the running trial goes on"


def test_job_waiting_longest_is_named() -> None:
    found = Plan(hopeless("bbbbb", NOW - 60_001), hopeless("aaaaa", NOW - 70_000), config=TWO)
    assert [record.hold.sentence for record in found.records(HoldService)] == [SENTENCE]


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "RUNNING"},
        {"state": "INTENT"},
        {"since_ms": None},
        {"unreachable_ms": NOW - 5, "unreachable": "no route to host"},
    ],
)
def test_other_jobs_hold_nothing(changes: dict[str, Any]) -> None:
    assert Plan(hopeless(**changes), config=TWO).records(HoldService) == []


def test_service_away_is_not_put_on_hold() -> None:
    away = {"fake": ServiceState(away_since_ms=NOW - 5, trouble="no route to host", retry_at_ms=NOW + 1000)}
    assert Plan(hopeless(), config=TWO, services=away).records(HoldService) == []


def test_stopping_experiment_gets_no_new_hold() -> None:
    assert Plan(hopeless(), config=TWO, row=experiment("STOPPING")).records(HoldService) == []


def test_hold_of_another_code_stays() -> None:
    found = Plan(hopeless(), config=TWO, holds={"fake": hold("BAD_CREDENTIALS")})
    assert found.records(HoldService) == []


# ------------------------------------------------------------------------------------------------ the hold ends


def test_hold_stays_while_the_job_waits() -> None:
    found = Plan(hopeless(since_ms=NOW - 99_000), config=TWO, holds={"fake": HELD}, proposals=proposals(1))
    assert found.records(HoldService) == []


@pytest.mark.parametrize("state", ["RUNNING", "CANCELLED", "FAILED", "LOST"])
def test_hold_ends_when_the_job_starts_or_is_decided(state: str) -> None:
    row = experiment(hold=HELD, next_sequence_id=1)
    found = Plan(hopeless(state=state), row=row, holds={"fake": HELD}, proposals=proposals(1))
    assert found.records(HoldService) == [HoldService(service="fake", hold=None)]
    assert found.records(PutOnHold) == [PutOnHold(hold=None)]
    assert "new00" in found.submitted, "new trials start in the same turn"


def test_hold_ends_when_the_wait_has_hope() -> None:
    found = Plan(hopeless(since_ms=None), config=TWO, holds={"fake": HELD})
    assert found.records(HoldService) == [HoldService(service="fake", hold=None)]
    assert found.records(PutOnHold) == []


def test_hold_names_the_next_hopeless_job() -> None:
    row = experiment(hold=HELD, next_sequence_id=2)
    found = Plan(hopeless("aaaaa", None), hopeless("bbbbb"), row=row, holds={"fake": HELD})
    (held,) = found.records(HoldService)
    assert "trial bbbbb" in held.hold.sentence
    assert [one.hold for one in found.records(PutOnHold)] == [None, held.hold]


def test_hold_of_the_experiment_itself_stays() -> None:
    row = experiment(hold=hold("TUNER_RAISED"), next_sequence_id=1)
    found = Plan(hopeless(since_ms=None), row=row, holds={"fake": HELD}, proposals=proposals(1))
    assert found.records(HoldService) == [HoldService(service="fake", hold=None)]
    assert (found.records(PutOnHold), found.submitted) == ([], [])


# ------------------------------------------------------------------------------------------------ stored, turn by turn


class Turns:
    """Turns of an experiment with one service that reports a hopeless wait; a fresh process in each."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.now_ms = NOW
        self.name = ""

    def turn(self, wait: Wait | None = None, state: str = "", proposals: int = 0) -> Result:
        reports = {self.name: Observation(state=JobState(state), wait=wait)} if state else {}
        here = ProcessState(
            now_ms=self.now_ms,
            services={"fake": ServiceState()},
            proposals=tuple(Proposal(parameter_id=number, values={}) for number in range(proposals)),
            asked=9,
        )
        self.connection.execute("BEGIN IMMEDIATE")
        result = take_turn(self.connection, spec(), Seen(reports=reports), here, reported=0, assessed=False)
        self.connection.execute("COMMIT")
        return result

    def submit(self) -> None:
        """One trial, whose job the platform has accepted."""
        self.turn(proposals=1)
        (self.name,) = [one.job.job_name for one in trials.load_open(self.connection) if one.job is not None]
        jobs.set_handle(self.connection, JobHandle(platform="fake", version=1, job_name=self.name))

    def later(self, seconds: int, **seen: Any) -> Result:
        self.now_ms += seconds * 1000
        return self.turn(**seen)

    @property
    def holds(self) -> tuple[str, str]:
        """Codes of the holds of service and experiment."""
        of_service = services.holds(self.connection).get("fake")
        of_experiment = experiments.load(self.connection).hold
        return (of_service.code if of_service else "", of_experiment.code if of_experiment else "")


WAIT = Wait(code=WaitCode.QUOTA, sentence=NEVER, is_hopeless=True)
NONE, BOTH = ("", ""), ("NEVER_STARTS", "NEVER_STARTS")


@pytest.fixture
def turns(connection: sqlite3.Connection) -> Turns:
    found = Turns(connection)
    found.submit()
    return found


def test_hold_begins_and_ends_over_restarts(turns: Turns) -> None:
    turns.later(1, state="PENDING", wait=WAIT)
    (shown,) = [one for one in turns.later(1, state="PENDING", wait=WAIT).records if isinstance(one, SetWait)] or [None]
    assert shown is None, "its reason is already written"
    turns.later(58)
    assert turns.holds == NONE
    turns.later(1, state="PENDING", wait=WAIT)
    assert turns.holds == BOTH
    turns.later(600)
    assert turns.holds == BOTH, "a process that has heard nothing keeps it"
    result = turns.later(1, state="RUNNING")
    assert [one for one in result.records if isinstance(one, StartTrial)]
    assert (turns.holds, result.hold) == (NONE, None)


def test_minute_begins_again_after_a_hopeful_report(turns: Turns) -> None:
    turns.later(1, state="PENDING", wait=WAIT)
    turns.later(50, state="PENDING", wait=replace(WAIT, is_hopeless=False))
    turns.later(1, state="PENDING", wait=WAIT)
    turns.later(30)
    assert turns.holds == NONE
    turns.later(30)
    assert turns.holds == BOTH


def test_resume_ends_the_hold_for_a_minute(turns: Turns) -> None:
    turns.later(1, state="PENDING", wait=WAIT)
    turns.later(60)
    assert turns.holds == BOTH
    services.clear_holds(turns.connection, turns.now_ms)
    experiments.set_hold(turns.connection, None, turns.now_ms)
    turns.later(30, state="PENDING", wait=WAIT)
    assert turns.holds == NONE
    turns.later(30)
    assert turns.holds == BOTH, "the job still waits"


def test_hold_ends_with_the_killed_trial(turns: Turns) -> None:
    turns.later(1, state="PENDING", wait=WAIT)
    turns.later(60)
    (open_trial,) = trials.load_open(turns.connection)
    trials.request_stop(turns.connection, open_trial.id, StopRequest.USER)
    turns.later(1)
    assert turns.holds == BOTH, "its job is still in the queue"
    turns.later(1, state="CANCELLED")
    assert turns.holds == NONE
    assert experiments.load(turns.connection).status is ExperimentStatus.RUNNING


def test_set_clock_does_not_shorten_the_minute(turns: Turns) -> None:
    turns.later(1, state="PENDING", wait=WAIT)
    experiments.shift_times(turns.connection, 3_600_000, turns.now_ms + 3_600_000)
    turns.later(3_600 + 30)
    assert turns.holds == NONE
    turns.later(30)
    assert turns.holds == BOTH


def test_job_name_is_that_of_the_trial(turns: Turns) -> None:
    (open_trial,) = trials.load_open(turns.connection)
    assert turns.name == job_name(experiments.load(turns.connection).id, open_trial.id, 1)
