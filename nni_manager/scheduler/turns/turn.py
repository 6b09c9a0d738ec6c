"""One turn of an experiment in one transaction: store the events → snapshot → plan → record.

It runs on the writer thread, so no command or result comes between the snapshot and the decisions. It has no state, as
it is repeated if the database could not be written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from nni_manager.domain.attempt import PLATFORM, Observation
from nni_manager.domain.clock import Durations
from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus, Hold, HoldCode, StoredExperiment
from nni_manager.domain.job import JobHandle
from nni_manager.domain.service import WaitCode
from nni_manager.domain.trial import StopRequest
from nni_manager.scheduler.planning import decisions as d
from nni_manager.scheduler.planning.experiment_status import SAME_FAILURES
from nni_manager.scheduler.planning.plan import SUBMITTED, plan
from nni_manager.scheduler.planning.snapshot import ProcessState, Snapshot
from nni_manager.store import stored_state
from nni_manager.store.experiment import experiments, history, jobs, metrics, reports, runners, services, trials
from nni_manager.store.experiment.metrics import OutboxPart, Receipt, Stored

#: Maximum milliseconds between two updates of the stored execution time.
_COUNT_EVERY_MS = 10_000


@dataclass(slots=True, kw_only=True)
class Seen:
    """The unstored events since the last turn. The inbox fills it; a turn, which may run twice, never changes it."""

    handles: list[JobHandle] = field(default_factory=list)
    #: Job name → observation.
    reports: dict[str, Observation] = field(default_factory=dict)
    #: Last lines of jobs; an end among the reports counts only if they are stored.
    last_lines: list[OutboxPart] = field(default_factory=list)
    #: (job name, exit report of its runner, JSON), of reports without last lines.
    runner_exits: list[tuple[str, str]] = field(default_factory=list)
    #: Jobs that the platform certainly did not accept: their intent is withdrawn.
    refused: list[str] = field(default_factory=list)
    #: Jobs that the platform has removed.
    forgotten: list[str] = field(default_factory=list)
    #: Trials whose checkpoints are removed.
    without_checkpoints: list[str] = field(default_factory=list)
    #: Trials that the assessor stops early.
    judged_bad: list[str] = field(default_factory=list)
    #: Training service → why it is on hold.
    holds: dict[str, Hold] = field(default_factory=dict)
    #: Training services that accept their credentials again.
    ended_holds: list[str] = field(default_factory=list)
    hold: Hold | None = None
    #: Milliseconds by which the wall clock was set.
    clock_step_ms: int = 0
    #: Milliseconds by which the wall clock is ahead of the monotonic one; converts monotonic times of reports.
    apart_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a turn, which the loop carries out."""

    #: One per chunk of last lines, in order.
    receipts: tuple[Receipt, ...]
    status: ExperimentStatus
    ended_ms: int | None
    hold: Hold | None
    calls: tuple[d.Call, ...]
    #: Results that are new to the tuner, in end order.
    to_tell: tuple[dict[str, Any], ...]
    records: tuple[d.Record, ...]
    #: A job's link, place or reachability changed, or the message of an ended trial.
    shows_more: bool
    #: Training service → trials that wait for room there.
    wants: Mapping[str, int]
    wake_at_ms: int | None
    next_parameter_id: int


def take_turn(
    connection: sqlite3.Connection,
    spec: ExperimentSpec,
    seen: Seen,
    here: ProcessState,
    *,
    reported: int,
    assessed: bool,
) -> Result:
    """`reported`: highest end order that the tuner knows; `assessed`: include intermediates, for an assessor."""
    receipts, shows_more = store_events(connection, seen, here.now_ms)
    stored = stored_state.load(
        connection,
        spec,
        proposals=len(here.proposals),
        submitting=here.submitting,
        by_runner=here.by_runner,
        first_ended=SAME_FAILURES,
        removing=here.removing_checkpoints,
        ready={name: state.is_ready for name, state in here.services.items()},
    )
    decided = plan(Snapshot.of(stored, spec, here))
    before = stored.experiment
    if here.now_ms - before.counted_ms >= _COUNT_EVERY_MS:
        experiments.count_time(connection, here.now_ms)
    for record in decided.records:
        _write(connection, record, here.now_ms)
    after = _after(connection, before, decided.records)
    to_tell = history.ended(connection, after=reported, intermediates=assessed) if after.ended_trials > reported else []
    return Result(
        receipts=receipts,
        status=after.status,
        ended_ms=after.ended_ms,
        hold=after.hold,
        calls=tuple(decided.calls),
        to_tell=tuple(to_tell),
        records=tuple(decided.records),
        shows_more=shows_more,
        wants=decided.wants,
        wake_at_ms=decided.wake_at_ms,
        next_parameter_id=after.next_parameter_id,
    )


def store_events(connection: sqlite3.Connection, seen: Seen, now_ms: int) -> tuple[tuple[Receipt, ...], bool]:
    """Stores the events; returns the receipts of the last lines, and `Result.shows_more`."""
    if seen.clock_step_ms:  # first, as later times are by the new clock
        experiments.shift_times(connection, seen.clock_step_ms, now_ms)
    for handle in seen.handles:
        jobs.set_handle(connection, handle)
    receipts = tuple(metrics.store(connection, chunk, now_ms) for chunk in seen.last_lines)
    outcomes = zip(seen.last_lines, receipts, strict=True)
    missed = [chunk for chunk, receipt in outcomes if receipt.stored is Stored.GAP]
    incomplete = {chunk.job_name for chunk in missed if not chunk.runner_exit}
    reported = (
        (chunk.job_name, chunk.runner_exit) for chunk in seen.last_lines if chunk.runner_exit and chunk not in missed
    )
    for name, runner_exit in (*reported, *seen.runner_exits):
        runners.set_exit(connection, name, runner_exit, now_ms)
    shows_more = False
    for name, report in seen.reports.items():
        if jobs.is_submitted_anew(connection, name, report.about):
            continue
        if report.was_never_taken and jobs.return_to_intent(connection, name):
            continue
        if report.is_untaken and jobs.withdraw(connection, name, was_accepted=True):
            continue
        if name not in incomplete:  # its end will be reported again with the missing lines
            shows_more |= reports.set_report(connection, name, report, now_ms, seen.apart_ms)
    for name in seen.refused:
        jobs.withdraw(connection, name)
    for name in seen.forgotten:
        jobs.set_forgotten(connection, name)
    if seen.without_checkpoints:
        trials.set_checkpoints_removed(connection, seen.without_checkpoints)
    for trial_id in seen.judged_bad:
        trials.request_stop(connection, trial_id, StopRequest.ASSESSOR)
    for name in seen.ended_holds:
        _end_hold(connection, name, now_ms)
    for name, hold in seen.holds.items():
        services.set_hold(connection, name, hold)
    if seen.hold is not None:
        experiments.set_hold(connection, seen.hold, now_ms)
    return receipts, shows_more


def _end_hold(connection: sqlite3.Connection, service: str, now_ms: int) -> None:
    """Ends a service's hold for refused credentials, and the experiment's hold if it came from the services'."""
    known = services.load(connection)
    hold = known[service].hold if service in known else None
    if hold is None or hold.code is not HoldCode.BAD_CREDENTIALS:
        return
    services.set_hold(connection, service, None)
    if experiments.load(connection).hold in [row.hold for row in known.values()]:
        experiments.set_hold(connection, None, now_ms)


def _after(connection: sqlite3.Connection, before: StoredExperiment, records: Sequence[d.Record]) -> StoredExperiment:
    """The experiment's row once the records are written; read again only if more than counters changed."""
    if any(isinstance(record, d.SetStatus | d.PutOnHold) for record in records):
        return experiments.load(connection)
    proposed = (record.parameter_id + 1 for record in records if isinstance(record, d.AddTrial))
    return before._replace(
        ended_trials=before.ended_trials + sum(isinstance(record, d.Finish) for record in records),
        next_parameter_id=max(before.next_parameter_id, *proposed, 0),
    )


def _write(connection: sqlite3.Connection, record: d.Record, now_ms: int) -> None:
    match record:
        case d.AddTrial():
            trials.add(
                connection,
                id=record.trial_id,
                parameter_id=record.parameter_id,
                record=record.record,
                continues=record.continues,
                wait_code=SUBMITTED.code,
                wait_sentence=SUBMITTED.sentence,
                now_ms=now_ms,
            )
        case d.StartAttempt():
            jobs.intend(connection, record.attempt)
        case d.StartTrial():
            trials.set_running(connection, record.trial_id, record.started_ms)
        case d.MarkUnknown():
            trials.set_unknown(connection, record.trial_id, record.sentence)
        case d.RequestStop():
            trials.request_stop(connection, record.trial_id, record.by)
        case d.MarkLost():
            jobs.mark_lost(connection, record.trial_id, record.attempt, record.message, record.ended_ms)
        case d.Finish():
            jobs.close(connection, record.trial_id, record.attempt, may_run=record.may_run)
            trials.finish(
                connection,
                record.trial_id,
                status=record.status,
                reason=record.reason,
                message=record.message,
                ended_ms=record.ended_ms,
                started_ms=record.started_ms,
                last_words=record.last_words,
                failure_key=record.failure_key,
            )
        case d.NoteCheckpoint():
            trials.note_checkpoint(connection, record.trial_id)
        case d.GiveUpAttempt():
            jobs.close(connection, record.trial_id, record.attempt, record.account)
            trials.next_attempt(connection, record.trial_id, WaitCode.RETRY, record.sentence)
        case d.ReviveAttempt():
            if record.replaced is not None:
                jobs.close(connection, record.trial_id, record.replaced, PLATFORM, may_run=record.may_run)
            jobs.revive(connection, record.trial_id, record.attempt, now_ms)
            trials.revive_attempt(connection, record.trial_id, record.attempt, record.sentence)
        case d.DropMissed():
            jobs.drop_missed(connection, record.trial_id, record.attempt)
        case d.SetWait():
            trials.set_waiting(connection, record.trial_id, record.wait, now_ms)
        case d.SetStatus():
            experiments.set_status(connection, record.status, now_ms, record.error)
        case d.PutOnHold():
            experiments.set_hold(connection, record.hold, now_ms)
        case d.CountUnusable():
            experiments.set_unusable_results(connection, record.count)
        case d.HoldService():
            services.set_hold(connection, record.service, record.hold)
        case _:
            assert_never(record)


class Tally:
    """Counters; written on the event loop only."""

    def __init__(self) -> None:
        #: Durations of turns, from queueing to commit.
        self.turns = Durations()
        #: Intermediate and final results that were stored.
        self.results = 0


tally = Tally()
