"""One turn on a real database: what was seen goes in, what was decided is recorded, nothing is decided twice."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from dataclasses import replace
from typing import Any

import pytest

from nni_manager.domain.attempt import PLATFORM, Observation
from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.metrics import Metric, MetricType
from nni_manager.domain.trial import OpenTrial, StopRequest
from nni_manager.platform_kit.contract import Capabilities
from nni_manager.scheduler.planning import decisions as d
from nni_manager.scheduler.planning.snapshot import ProcessState, ServiceState
from nni_manager.scheduler.turns import turn
from nni_manager.scheduler.turns.turn import Result, Seen, take_turn
from nni_manager.store.experiment import experiments, jobs, metrics, trials
from nni_manager.store.experiment.metrics import OutboxPart, Stored
from tests.scheduler.pictures import NOW, OF_A_SERVICE, hold, proposals, service_state, spec

pytestmark = pytest.mark.unit

RUNNING = Observation(state=JobState.RUNNING, started_ms=NOW)
SUCCEEDED = Observation(state=JobState.SUCCEEDED, exit_code=0, ended_ms=NOW + 5)


class Turns:
    """Takes turns; remembers what the loop would: what is under way and what was told."""

    def __init__(self, connection: sqlite3.Connection, config: ExperimentSpec | None = None) -> None:
        self.connection = connection
        self.config = config or spec()
        self.told = 0

    def take(self, seen: Seen | None = None, *, assessed: bool = False, **here: Any) -> Result:
        every = {name: here.pop(name) for name in OF_A_SERVICE if name in here}
        state = ProcessState(**{"now_ms": NOW, "services": {"fake": service_state(**every)}, **here})
        result = take_turn(self.connection, self.config, seen or Seen(), state, reported=self.told, assessed=assessed)
        if result.to_tell:
            self.told = result.to_tell[-1]["end_order"]
        return result

    def submitted(self, **here: Any) -> list[d.Submit]:
        return [call for call in self.take(**here).calls if isinstance(call, d.Submit)]

    def start(self, *numbers: int) -> list[str]:
        """New trials, accepted and running; answers their jobs' names."""
        names = [call.attempt.job_name for call in self.submitted(proposals=proposals(*numbers))]
        handles = tuple(JobHandle(platform="fake", version=1, job_name=name) for name in names)
        self.take(Seen(handles=handles, reports={name: RUNNING for name in names}))
        return names

    def open_trials(self) -> dict[str, OpenTrial]:
        return {trial.job.job_name if trial.job else trial.id: trial for trial in trials.load_open(self.connection)}


@pytest.fixture
def turns(connection: sqlite3.Connection) -> Turns:
    return Turns(connection)


def test_the_life_of_a_trial(turns: Turns) -> None:
    first = turns.take(proposals=proposals(0))
    (submit,) = [call for call in first.calls if isinstance(call, d.Submit)]
    (trial,) = turns.open_trials().values()
    assert (trial.id, trial.status, trial.wait_code, trial.sequence_id) == (
        submit.attempt.trial_id,
        "WAITING",
        "SUBMITTED",
        0,
    )
    assert trial.record == submit.record
    assert first.next_parameter_id == 1
    handle = JobHandle(platform="fake", version=1, job_name=submit.attempt.job_name, data="x")
    turns.take(Seen(handles=(handle,), reports={submit.attempt.job_name: RUNNING}))
    (trial,) = turns.open_trials().values()
    assert (trial.status, trial.started_ms, trial.wait_code) == ("RUNNING", NOW, "")
    last = turns.take(Seen(reports={submit.attempt.job_name: SUCCEEDED}))
    assert last.calls[0] == d.Forget(handle=handle, service="fake")
    assert [(item["trial_id"], item["status"], item["parameters"]) for item in last.to_tell] == [
        (submit.attempt.trial_id, "SUCCEEDED", {"x": 0})
    ]
    assert turns.open_trials() == {}
    assert jobs.unforgotten(turns.connection, "fake") == [handle]
    turns.take(Seen(forgotten=(submit.attempt.job_name,)))
    assert jobs.unforgotten(turns.connection, "fake") == []


def test_unknown_decision_fails_turn(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown: Any = object()
    monkeypatch.setattr(turn, "plan", lambda _: d.Decisions(records=[unknown]))
    with pytest.raises(AssertionError):
        turns.take()


def test_a_trial_whose_start_and_end_are_seen_together_has_run(turns: Turns) -> None:
    (submit,) = [call for call in turns.take(proposals=proposals(0)).calls if isinstance(call, d.Submit)]
    handle = JobHandle(platform="fake", version=1, job_name=submit.attempt.job_name)
    ended = replace(SUCCEEDED, started_ms=NOW + 1)
    turns.take(Seen(handles=(handle,), reports={submit.attempt.job_name: ended}))
    times = turns.connection.execute("SELECT status, started_ms, ended_ms FROM trials").fetchall()
    assert times == [("SUCCEEDED", NOW + 1, NOW + 5)]


def test_monotonic_times_are_converted_at_receipt(turns: Turns) -> None:
    """A turn may wait long for the database: this does not make a job older."""
    (name,) = turns.start(1)
    steady = Observation(state=JobState.RUNNING, started_ms=7_000, is_steady=True)
    turns.take(Seen(reports={name: steady}, apart_ms=NOW - 5_000), now_ms=NOW + 60_000)
    assert turns.open_trials()[name].job.started_ms == NOW + 2_000


def test_second_turn_decides_nothing(turns: Turns) -> None:
    (name,) = turns.start(0)
    for again in (
        lambda **here: turns.take(**here),
        lambda **here: turns.take(Seen(reports={name: RUNNING}), **here),
    ):
        found = again(asked=1)
        assert (found.calls, found.records, found.to_tell) == ((), (), ())


def test_lost_submission_is_repeated_and_a_running_one_is_not(turns: Turns) -> None:
    (first,) = [c for c in turns.take(proposals=proposals(0)).calls if isinstance(c, d.Submit)]
    under_way = turns.take(submitting=frozenset({first.attempt.job_name}), asked=1)
    assert (under_way.calls, under_way.records) == ((), ())
    after_a_crash = turns.take(asked=1)
    assert (after_a_crash.calls, after_a_crash.records) == ((replace(first, is_repeat=True),), ())


def test_stop_is_recorded_once_and_repeated_after_restart(turns: Turns) -> None:
    (name,) = turns.start(0)
    experiments.set_status(turns.connection, ExperimentStatus.STOPPING, NOW)
    first = turns.take()
    assert [type(record) for record in first.records] == [d.RequestStop]
    (cancel,) = first.calls
    assert turns.take(cancelled=frozenset({name})).calls == ()
    again = turns.take()
    assert (again.calls, again.records) == ((cancel,), ())


def test_a_job_that_was_accepted_and_never_ran_costs_nothing(turns: Turns) -> None:
    (submit,) = turns.submitted(proposals=proposals(0))
    handle = JobHandle(platform="fake", version=1, job_name=submit.attempt.job_name)
    pending, never = Observation(state=JobState.PENDING), Observation(state=JobState.LOST, is_untaken=True)
    for _ in range(5):
        turns.take(Seen(handles=(handle,), reports={submit.attempt.job_name: pending}))
        again = turns.take(Seen(reports={submit.attempt.job_name: never}))
        submitted = [call for call in again.calls if isinstance(call, d.Submit)]
        assert [(call.attempt.job_name, call.attempt.number) for call in submitted] == [(submit.attempt.job_name, 1)]
    assert jobs.retries(turns.connection, submit.attempt.trial_id) == (0, 0)


def test_job_that_ran_is_not_withdrawn(turns: Turns) -> None:
    """It is lost: left as it was, it would run for ever."""
    (name,) = turns.start(0)
    records = turns.take(Seen(reports={name: Observation(state=JobState.LOST, is_untaken=True)})).records
    assert [record.account for record in records if isinstance(record, d.GiveUpAttempt)] == [PLATFORM]


def test_refused_submission_is_withdrawn_and_retried(turns: Turns) -> None:
    (submit,) = [c for c in turns.take(proposals=proposals(0)).calls if isinstance(c, d.Submit)]
    away: dict[str, Any] = {"trouble": "no", "retry_at_ms": NOW + 9}
    refused = turns.take(Seen(refused=(submit.attempt.job_name,)), **away)
    (trial,) = turns.open_trials().values()
    assert (trial.job, trial.attempt, trial.wait_code) == (None, 1, "PLATFORM_UNAVAILABLE")
    assert refused.wake_at_ms == NOW + 9
    assert turns.take(now_ms=NOW + 9, asked=1, **away).calls == (
        replace(submit, attempt=submit.attempt._replace(intended_ms=NOW + 9)),
    )


def test_a_lost_job_is_followed_by_the_next_attempt(turns: Turns) -> None:
    (name,) = turns.start(0)
    found = turns.take(Seen(reports={name: Observation(state=JobState.LOST)}))
    assert (found.to_tell, found.wake_at_ms, found.status) == ((), NOW, "RUNNING")
    following = turns.take()
    assert [c.attempt.job_name for c in following.calls if isinstance(c, d.Submit)] == [f"{name}-2"]
    late = turns.take(Seen(reports={name: SUCCEEDED}), submitting=frozenset({f"{name}-2"}), asked=9)
    assert (late.records, late.to_tell) == ((), ())


def test_two_lost_jobs_cost_two_retries_and_the_third_the_trial(turns: Turns) -> None:
    (name,) = turns.start(0)
    for job in (name, f"{name}-2", f"{name}-3"):
        found = turns.take(Seen(reports={job: Observation(state=JobState.LOST)}), asked=9)
        found = turns.take(asked=9) if not found.to_tell else found
    assert [(item["status"], item["end_order"]) for item in found.to_tell] == [("SYS_CANCELED", 1)]


def test_uncounted_preemptions_cost_no_retry(turns: Turns) -> None:
    (name,) = turns.start(0)
    taken = Observation(state=JobState.PREEMPTED, is_uncounted=True)
    for job in (name, *(f"{name}-{number}" for number in range(2, 6))):
        turns.take(Seen(reports={job: taken}), asked=9)
        turns.take(asked=9)
    (trial,) = turns.open_trials().values()
    assert (trial.attempt, jobs.retries(turns.connection, trial.id)) == (6, (0, 0))


def test_a_retry_never_shows_the_experiment_as_done(connection: sqlite3.Connection) -> None:
    turns = Turns(connection, spec(max_trial_number=1))
    (name,) = turns.start(0)
    turns.take(Seen(reports={name: Observation(state=JobState.LOST)}))
    statuses = [turns.take().status for _ in range(3)]
    assert statuses == ["NO_MORE_TRIAL"] * 3
    assert experiments.load(connection).ended_ms is None


def test_assessed_trial_is_stopped_in_the_same_turn(turns: Turns) -> None:
    (name,) = turns.start(0)
    found = turns.take(Seen(judged_bad=(turns.open_trials()[name].id, "zzzzz")))
    assert [type(call) for call in found.calls if not isinstance(call, d.AskTuner)] == [d.Cancel]
    assert turns.open_trials()[name].asked is StopRequest.ASSESSOR


def test_a_hold_counts_in_the_turn_it_is_seen(turns: Turns) -> None:
    found = turns.take(Seen(hold=hold()), proposals=proposals(0))
    assert (found.calls, found.hold) == ((), hold())
    experiments.set_hold(turns.connection, None)
    assert [type(call) for call in turns.take(proposals=proposals(0)).calls] == [d.Submit, d.AskTuner]


def test_results_are_sent_once_in_order(turns: Turns) -> None:
    names = turns.start(0, 1)
    together = turns.take(Seen(reports={name: SUCCEEDED for name in names}))
    assert [item["end_order"] for item in together.to_tell] == [1, 2]
    assert [item["sequence"] for item in together.to_tell if "sequence" in item] == []
    assert turns.take(asked=9).to_tell == ()


def test_time_is_counted_now_and_then(turns: Turns) -> None:
    for now_ms, counted in ((9_999, 0), (10_000, 10_000), (10_500, 10_000)):
        turns.take(asked=9, now_ms=now_ms)
        assert experiments.load(turns.connection).exec_ms == counted


def last_lines(job_name: str, start: int = 0) -> Seen:
    """And the end that came with them."""
    metric = Metric(number=0, type=MetricType.FINAL, data="7", value=7.0)
    chunk = OutboxPart(
        job_name=job_name, outbox="outbox/main.jsonl", start=start, end=start + 9, lines=1, metrics=[metric]
    )
    return Seen(last_lines=(chunk,), reports={job_name: SUCCEEDED})


def test_the_last_lines_of_a_job_and_its_end_are_one_step(turns: Turns) -> None:
    (name,) = turns.start(0)
    result = turns.take(last_lines(name))
    assert [receipt.stored for receipt in result.receipts] == [Stored.NEW]
    assert [(item["status"], item["value"]) for item in result.to_tell] == [("SUCCEEDED", 7)]


def test_end_with_a_gap_before_its_last_lines_is_ignored(turns: Turns) -> None:
    (name,) = turns.start(0)
    result = turns.take(last_lines(name, start=50))
    assert [receipt.stored for receipt in result.receipts] == [Stored.GAP]
    assert result.to_tell == ()
    assert list(turns.open_trials()) == [name]


def with_word(job_name: str, start: int = 0) -> Seen:
    """Last lines with their runner's exit report."""
    (chunk,) = last_lines(job_name, start).last_lines
    word = json.dumps({"exitCode": 0, "signal": None, "outboxes": {chunk.outbox: chunk.end}})
    return Seen(last_lines=(replace(chunk, runner_exit=word),))


def test_last_lines_and_runner_exit_are_one_commit(turns: Turns) -> None:
    (name,) = turns.start(0)
    result = turns.take(with_word(name))
    assert [(item["status"], item["value"]) for item in result.to_tell] == [("SUCCEEDED", 7)]


def test_runner_exit_with_rejected_lines_is_ignored(turns: Turns) -> None:
    """The platform's own report, which does not come again, counts as well."""
    first, second = turns.start(0, 1)
    turns.take(with_word(first, start=50))
    job = turns.open_trials()[first].job
    assert job is not None and job.runner_exit is None
    result = turns.take(replace(with_word(second, start=50), reports={second: SUCCEEDED}))
    assert [item["status"] for item in result.to_tell] == ["SUCCEEDED"]


def test_repeated_last_lines_are_rejected(turns: Turns) -> None:
    (name,) = turns.start(0)
    first, second = (turns.take(last_lines(name)) for _ in range(2))
    assert (len(first.to_tell), len(second.to_tell)) == (1, 0)
    assert [receipt.stored for receipt in second.receipts] == [Stored.FENCED]


def test_turn_runs_again_after_a_rollback(turns: Turns) -> None:
    """The database could not be written: the same turn is taken again from the start."""
    results = []
    for _ in range(2):
        turns.connection.execute("BEGIN")
        results.append(turns.take(proposals=proposals(0)))
        turns.connection.execute("ROLLBACK")
    assert [len(result.records) for result in results] == [2, 2]
    assert turns.open_trials() == {}


def test_resubmitted_job_is_read_from_stored_offset(turns: Turns) -> None:
    """The daemon was killed after its first results came and before its handle was written down."""
    (first,) = turns.submitted(proposals=proposals(0))
    assert first.stored == {}
    metric = Metric(type=MetricType.PERIODICAL, data="1", value=1.0, number=0)
    name = first.attempt.job_name
    part = OutboxPart(job_name=name, outbox="outbox/main.jsonl", start=0, end=30, lines=1, metrics=[metric])
    metrics.store(turns.connection, part, NOW)
    assert turns.submitted(submitting=frozenset({name})) == []
    (again,) = turns.submitted()
    assert (again.attempt.job_name, again.stored) == (name, {"outbox/main.jsonl": 30})


def test_unknown_job_is_resubmitted_without_retry(turns: Turns) -> None:
    (submit,) = turns.submitted(proposals=proposals(0))
    name = submit.attempt.job_name
    unsure = JobHandle(platform="fake", version=1, job_name=name)
    turns.take(Seen(handles=(unsure,)))
    never = Observation(state=JobState.LOST, message="the keeper knows nothing of it", was_never_taken=True)
    result = turns.take(Seen(reports={name: never}))
    (again,) = [call for call in result.calls if isinstance(call, d.Submit)]
    assert (again.attempt.job_name, again.is_repeat) == (name, True) and result.records == ()
    assert jobs.retries(turns.connection, again.attempt.trial_id) == (0, 0)


@pytest.mark.parametrize("kind", ["was_never_taken", "is_untaken"])
def test_report_on_an_earlier_submission_is_ignored(turns: Turns, kind: str) -> None:
    """Which may be at another machine, and run."""
    (submit,) = turns.submitted(proposals=proposals(0))
    name = submit.attempt.job_name
    before, now = (JobHandle(platform="fake", version=1, job_name=name, data=at) for at in ("one", "two"))
    turns.take(Seen(handles=(before,)))
    told = dataclasses.replace(Observation(state=JobState.LOST, about=before), **{kind: True})
    assert turns.take(Seen(reports={name: told})).calls, "it is submitted again"
    for seen in (Seen(reports={name: told}), Seen(handles=(now,), reports={name: told})):
        assert not [call for call in turns.take(seen).calls if isinstance(call, d.Submit) and not call.is_repeat]
    assert jobs.undecided(turns.connection, submit.attempt.service) == [now]


def test_job_that_ran_is_lost_if_its_platform_forgets_it(turns: Turns) -> None:
    (name,) = turns.start(0)
    never = Observation(state=JobState.LOST, was_never_taken=True)
    records = turns.take(Seen(reports={name: never})).records
    assert [record for record in records if isinstance(record, d.GiveUpAttempt)]


def test_stop_of_a_job_unknown_to_its_platform_ends_the_trial(turns: Turns) -> None:
    (submit,) = turns.submitted(proposals=proposals(0))
    turns.take(Seen(handles=(JobHandle(platform="fake", version=1, job_name=submit.attempt.job_name),)))
    trials.request_stop(turns.connection, submit.attempt.trial_id, StopRequest.USER)
    never = Observation(state=JobState.LOST, was_never_taken=True)
    result = turns.take(Seen(reports={submit.attempt.job_name: never}))
    assert [record.status for record in result.records if isinstance(record, d.Finish)] == ["USER_CANCELED"]


def test_unneeded_checkpoint_is_removed_if_service_is_reachable(connection: sqlite3.Connection) -> None:
    turns = Turns(connection, replace(spec(), kept_checkpoints=0))
    removes = dataclasses.replace(
        service_state(), capabilities=Capabilities(watches=True, reads_files=True, removes_checkpoints=True)
    )
    (name,) = turns.start(1)
    turns.take(Seen(reports={name: SUCCEEDED}), services={"fake": removes})
    trial_id = turns.connection.execute("SELECT id FROM trials").fetchone()[0]

    def removed(seen: Seen | None = None, state: ServiceState = removes, **here: Any) -> list[str]:
        calls = turns.take(seen, services={"fake": state}, **here).calls
        return [one.trial_id for call in calls if isinstance(call, d.RemoveCheckpoints) for one in call.checkpoints]

    assert removed() == [], "its job is not forgotten"
    assert removed(Seen(forgotten=(name,))) == [trial_id]
    assert removed(removing_checkpoints=frozenset({trial_id})) == [], "it is at work"
    assert removed(state=replace(removes, is_ready=False)) == []
    assert removed(Seen(holds={"fake": hold("INTERNAL")})) == [], "its adapter failed"
    turns.connection.execute("UPDATE services SET hold_code = ''")
    assert removed() == [trial_id]
    assert removed(Seen(without_checkpoints=(trial_id,))) == []
