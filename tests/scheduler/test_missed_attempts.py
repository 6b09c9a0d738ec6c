"""Jobs that counted as lost are heard of again: what they reported counts unless their trial has ended elsewhere."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.metrics import Metric, MetricType
from nni_manager.scheduler.planning import decisions as d
from nni_manager.scheduler.turns.turn import Seen
from nni_manager.store.experiment import jobs, metrics, trials
from nni_manager.store.experiment.metrics import OutboxPart, Stored
from tests.scheduler.pictures import NOW
from tests.scheduler.test_turn import RUNNING, SUCCEEDED, Turns

pytestmark = pytest.mark.unit

GONE = Observation(state=JobState.UNKNOWN, unreachable="hostA is away")
GRACE: dict[str, Any] = {"unreachable_grace_s": 600}
LATER = NOW + 700_000


@pytest.fixture
def turns(connection: sqlite3.Connection) -> Turns:
    return Turns(connection)


def lose(turns: Turns) -> str:
    """A trial with a job unreachable for longer than its service allows, before another attempt is started."""
    (name,) = turns.start(0)
    turns.take(Seen(reports={name: GONE}), **GRACE)
    lost = turns.take(now_ms=LATER, **GRACE)
    assert [type(record) for record in lost.records] == [d.MarkLost, d.GiveUpAttempt]
    assert not [call for call in lost.calls if isinstance(call, d.Forget)], "its machine keeps what it reported"
    return name


def start_again(turns: Turns, *, accepted: bool = True) -> str:
    (name,) = [call.attempt.job_name for call in turns.submitted(now_ms=LATER, **GRACE)]
    if accepted:
        handle = JobHandle(platform="fake", version=1, job_name=name)
        turns.take(Seen(handles=(handle,), reports={name: RUNNING}), now_ms=LATER, **GRACE)
    return name


def report(turns: Turns, name: str, value: int) -> None:
    data = str(value)
    found = (
        Metric(type=MetricType.PERIODICAL, number=0, data="1", value=1.0),
        Metric(type=MetricType.FINAL, number=1, data=data, value=float(value)),
    )
    part = OutboxPart(job_name=name, outbox="outbox/1", start=0, end=20, lines=2, metrics=found)
    assert metrics.store(turns.connection, part, LATER).stored is Stored.NEW


def result_of(turns: Turns) -> tuple[Any, ...]:
    query = "SELECT status, attempt, intermediates, final_data FROM trials"
    row: tuple[Any, ...] = turns.connection.execute(query).fetchone()
    return row


def test_missed_job_is_observed_and_kept_while_its_trial_is_open(turns: Turns) -> None:
    name = lose(turns)
    start_again(turns)
    assert name in {handle.job_name for handle in jobs.undecided(turns.connection, "fake")}
    assert jobs.unforgotten(turns.connection, "fake") == []


def test_succeeded_missed_attempt_replaces_a_running_one(turns: Turns) -> None:
    name = lose(turns)
    second = start_again(turns)
    report(turns, name, 7)
    assert result_of(turns) == ("RUNNING", 2, 0, None), "nothing of it counts before its end is known"
    back = turns.take(Seen(reports={name: SUCCEEDED}), now_ms=LATER, **GRACE)
    assert [type(record) for record in back.records] == [d.ReviveAttempt]
    assert [call.handle.job_name for call in back.calls if isinstance(call, d.Forget)] == [second]
    last = turns.take(now_ms=LATER, **GRACE)
    assert [item["status"] for item in last.to_tell] == ["SUCCEEDED"]
    assert result_of(turns) == ("SUCCEEDED", 1, 1, "7")
    assert jobs.retries(turns.connection, trial_id(turns)) == (1, 0), "of the one that was in vain"


def test_missed_attempt_waits_for_a_running_submission(turns: Turns) -> None:
    name = lose(turns)
    second = start_again(turns, accepted=False)
    under_way = frozenset({second})
    back = turns.take(Seen(reports={name: SUCCEEDED}), now_ms=LATER, submitting=under_way, **GRACE)
    assert not [record for record in back.records if isinstance(record, d.ReviveAttempt)]
    back = turns.take(now_ms=LATER, **GRACE)
    assert [type(record) for record in back.records] == [d.ReviveAttempt]


def test_running_missed_attempt_is_revived_if_it_is_the_last(turns: Turns) -> None:
    name = lose(turns)
    back = turns.take(Seen(reports={name: RUNNING}), now_ms=LATER, free=0, **GRACE)
    assert [type(record) for record in back.records] == [d.ReviveAttempt]
    assert not [call for call in back.calls if isinstance(call, d.Forget | d.Submit)]
    turns.take(now_ms=LATER, free=0, **GRACE)
    assert result_of(turns)[:2] == ("RUNNING", 1)
    failed = Observation(state=JobState.LOST, ended_ms=LATER)
    turns.take(Seen(reports={name: failed}), now_ms=LATER, **GRACE)
    again = turns.submitted(now_ms=LATER, **GRACE)
    assert [call.attempt.job_name for call in again] == [f"{name}-2"]


def test_vanishing_machines_do_not_add_attempts(turns: Turns) -> None:
    lose(turns)
    lost = None
    for days in range(1, 10):  # each machine is away for longer than the last
        later = LATER + days * 86_400_000
        (name,) = [call.attempt.job_name for call in turns.submitted(now_ms=later, **GRACE)]
        handle = JobHandle(platform="fake", version=1, job_name=name)
        turns.take(Seen(handles=[handle], reports={name: RUNNING}), now_ms=later, **GRACE)
        turns.take(Seen(reports={name: GONE}), now_ms=later, **GRACE)
        lost = turns.take(now_ms=later + 700_000, **GRACE)
        if any(isinstance(record, d.Finish) for record in lost.records):
            break
    assert lost is not None
    (end,) = [record for record in lost.records if isinstance(record, d.Finish)]
    assert (end.attempt, end.status, end.reason) == (1 + turns.config.max_platform_retries, "SYS_CANCELED", "LOST")


def test_running_missed_attempt_is_ended_after_another_started(turns: Turns) -> None:
    name = lose(turns)
    start_again(turns)
    back = turns.take(Seen(reports={name: RUNNING}), now_ms=LATER, **GRACE)
    assert [call.handle.job_name for call in back.calls if isinstance(call, d.Forget)] == [name]
    assert not [call for call in turns.take(now_ms=LATER, **GRACE).calls if isinstance(call, d.Forget)]
    assert jobs.unforgotten(turns.connection, "fake")[0].job_name == name
    jobs.set_forgotten(turns.connection, name)
    assert state_of(turns, name) == "CANCELLED", "an ended attempt is not shown as running"


def test_missed_job_without_use_is_ended(turns: Turns) -> None:
    name = lose(turns)
    second = start_again(turns)
    turns.take(Seen(reports={name: RUNNING, second: SUCCEEDED}), now_ms=LATER, **GRACE)
    for job in (name, second):
        jobs.set_forgotten(turns.connection, job)
    assert (state_of(turns, name), state_of(turns, second)) == ("CANCELLED", "SUCCEEDED")


def test_missed_job_is_forgotten_when_its_trial_ends(turns: Turns) -> None:
    name = lose(turns)
    second = start_again(turns)
    last = turns.take(Seen(reports={second: SUCCEEDED}), now_ms=LATER, **GRACE)
    assert {call.handle.job_name for call in last.calls if isinstance(call, d.Forget)} == {name, second}
    part = OutboxPart(job_name=name, outbox="outbox/1", start=0, end=20, lines=0, metrics=())
    assert metrics.store(turns.connection, part, LATER).stored is Stored.FENCED


def test_missed_attempt_unknown_to_its_machine_is_dropped(turns: Turns) -> None:
    name = lose(turns)
    back = turns.take(Seen(reports={name: Observation(state=JobState.LOST)}), now_ms=LATER, free=0, **GRACE)
    assert [type(record) for record in back.records][:1] == [d.DropMissed]
    assert result_of(turns)[:2] == ("WAITING", 2)


def test_the_next_attempt_has_a_new_number(turns: Turns) -> None:
    name = lose(turns)
    second = start_again(turns)
    turns.take(Seen(reports={second: GONE}), now_ms=LATER, **GRACE)
    turns.take(now_ms=LATER + 700_000, free=0, **GRACE)
    turns.take(Seen(reports={name: RUNNING}), now_ms=LATER + 700_000, free=0, **GRACE)
    turns.take(Seen(reports={name: Observation(state=JobState.LOST)}), now_ms=LATER + 700_000, free=0, **GRACE)
    again = turns.submitted(now_ms=LATER + 700_000, **GRACE)
    assert [call.attempt.job_name for call in again] == [f"{name}-3"]


def state_of(turns: Turns, job_name: str) -> str:
    (state,) = turns.connection.execute("SELECT state FROM attempts WHERE job_name = ?", (job_name,)).fetchone()
    return str(state)


def trial_id(turns: Turns) -> str:
    (id_,) = turns.connection.execute("SELECT id FROM trials").fetchone()
    assert trials.status(turns.connection, id_) is not None
    return str(id_)
