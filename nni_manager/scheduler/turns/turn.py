"""One turn of an experiment, inside one transaction: take in what was seen → snapshot → plan → record.

It runs on the writer thread, so no command and no result can come between the picture and what is decided from it. It
may run several times when the database cannot be written at once: it keeps nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nni_manager.domain.attempt import PLATFORM, Observation
from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus, Hold, HoldCode
from nni_manager.domain.job import JobHandle
from nni_manager.domain.service import WaitCode
from nni_manager.domain.trial import StopRequest
from nni_manager.scheduler.planning import decisions as d
from nni_manager.scheduler.planning.failures import SAME_FAILURES
from nni_manager.scheduler.planning.plan import SUBMITTED, plan
from nni_manager.scheduler.planning.snapshot import ProcessState, Snapshot
from nni_manager.store import stored_state
from nni_manager.store.experiment import experiments, history, jobs, metrics, missed_jobs, runners, services, trials
from nni_manager.store.experiment.metrics import OutboxPart, Receipt, Stored

#: Execution time is written down at least so often, in milliseconds.
_COUNT_EVERY_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The events since the last turn that are not in the store yet."""

    handles: tuple[JobHandle, ...] = ()
    #: Job name → evidence.
    reports: Mapping[str, Observation] = field(default_factory=dict)
    #: Last lines of jobs whose end is among the reports, where it counts only when they are stored.
    last_lines: tuple[OutboxPart, ...] = ()
    #: (job name, its runner's word about the end, JSON), of those that came without last lines.
    words: tuple[tuple[str, str], ...] = ()
    #: Jobs the platform certainly did not take: their intent is taken back.
    refused: tuple[str, ...] = ()
    #: Jobs of which the platform keeps nothing any more.
    forgotten: tuple[str, ...] = ()
    #: Trials the assessor wants to end.
    judged_bad: tuple[str, ...] = ()
    #: Training service → why it is on hold.
    holds: Mapping[str, Hold] = field(default_factory=dict)
    #: Training services whose credentials are taken again.
    ended_holds: tuple[str, ...] = ()
    hold: Hold | None = None
    #: Milliseconds by which the wall clock was set.
    clock_step_ms: int = 0
    #: Milliseconds by which it is ahead of the clock that nobody sets. Times of reports by the latter are dated by
    #: that, however long the turn waits for the database.
    apart_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a turn, for the loop to act on."""

    #: What became of the last lines, in their order.
    receipts: tuple[Receipt, ...]
    status: ExperimentStatus
    ended_ms: int | None
    hold: Hold | None
    calls: tuple[d.Call, ...]
    #: Results the tuner was not told yet, in the order trials ended.
    to_tell: tuple[dict[str, Any], ...]
    records: tuple[d.Record, ...]
    #: Where a job runs, can be looked at, or that it cannot be reached, is told anew.
    shows_more: bool
    #: Training service → trials that wait for room there.
    wants: Mapping[str, int]
    wake_at_ms: int | None
    next_parameter_id: int


def take_turn(
    connection: sqlite3.Connection, spec: ExperimentSpec, seen: Seen, here: ProcessState, *, told: int, assessed: bool
) -> Result:
    """`told`: results the tuner knows, by end order; `assessed`: an assessor wants intermediates with them."""
    receipts, shows_more = take_in(connection, seen, here.now_ms)
    stored = stored_state.load(
        connection,
        spec,
        proposals=len(here.proposals),
        submitting=here.submitting,
        by_runner=here.by_runner,
        first_ended=SAME_FAILURES,
    )
    decided = plan(Snapshot.of(stored, spec, here))
    before = stored.experiment
    if here.now_ms - before.counted_ms >= _COUNT_EVERY_MS:
        experiments.count_time(connection, here.now_ms)
    for record in decided.records:
        _RECORDERS[type(record)](connection, record, here.now_ms)
    after = experiments.load(connection) if any(type(r) in _OF_THE_EXPERIMENT for r in decided.records) else before
    to_tell = history.ended(connection, after=told, intermediates=assessed) if after.ended_trials > told else []
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


def take_in(connection: sqlite3.Connection, seen: Seen, now_ms: int) -> tuple[tuple[Receipt, ...], bool]:
    """Writes what was seen; says what became of the last lines, and whether more is known of where a job is."""
    if seen.clock_step_ms:  # first: what comes next is told by the new clock
        experiments.shift_moments(connection, seen.clock_step_ms, now_ms)
    for handle in seen.handles:
        jobs.set_handle(connection, handle)
    receipts = tuple(metrics.store(connection, chunk, now_ms) for chunk in seen.last_lines)
    outcomes = zip(seen.last_lines, receipts, strict=True)
    missed = [chunk for chunk, receipt in outcomes if receipt.stored is Stored.GAP]
    incomplete = {chunk.job_name for chunk in missed if not chunk.word}
    told = ((chunk.job_name, chunk.word) for chunk in seen.last_lines if chunk.word and chunk not in missed)
    for name, word in (*told, *seen.words):
        runners.set_exit(connection, name, word, now_ms)
    shows_more = False
    for name, report in seen.reports.items():
        if jobs.is_submitted_anew(connection, name, report.about):
            continue
        if report.was_never_taken and jobs.submit_again(connection, name):
            continue
        if report.is_untaken and jobs.take_back(connection, name, was_accepted=True):
            continue
        if name not in incomplete:  # its end is told again with the lines that are missing
            shows_more |= jobs.set_report(connection, name, report.dated(seen.apart_ms), now_ms)
    for name in seen.refused:
        jobs.take_back(connection, name)
    for name in seen.forgotten:
        jobs.set_forgotten(connection, name)
    for trial_id in seen.judged_bad:
        trials.ask_stop(connection, trial_id, StopRequest.ASSESSOR)
    for name in seen.ended_holds:
        _end_hold(connection, name, now_ms)
    for name, hold in seen.holds.items():
        services.set_hold(connection, name, hold)
    if seen.hold is not None:
        experiments.set_hold(connection, seen.hold, now_ms)
    return receipts, shows_more


def _end_hold(connection: sqlite3.Connection, service: str, now_ms: int) -> None:
    """Ends a service's hold for refused credentials, and the experiment's, if that is there as all services had one."""
    known = services.load(connection)
    hold = known[service].hold if service in known else None
    if hold is None or hold.code is not HoldCode.BAD_CREDENTIALS:
        return
    services.set_hold(connection, service, None)
    if experiments.load(connection).hold in [row.hold for row in known.values()]:
        experiments.set_hold(connection, None, now_ms)


def _add_trial(connection: sqlite3.Connection, record: d.AddTrial, now_ms: int) -> None:
    trials.add(
        connection,
        id=record.trial_id,
        parameter_id=record.parameter_id,
        record=record.record,
        wait_code=SUBMITTED.code,
        wait_sentence=SUBMITTED.sentence,
        now_ms=now_ms,
    )


def _start_attempt(connection: sqlite3.Connection, record: d.StartAttempt, now_ms: int) -> None:
    jobs.intend(connection, record.attempt)
    trials.set_waiting(connection, record.attempt.trial_id, SUBMITTED, now_ms)


def _start_trial(connection: sqlite3.Connection, record: d.StartTrial, now_ms: int) -> None:
    trials.set_running(connection, record.trial_id, record.started_ms)


def _lose_sight(connection: sqlite3.Connection, record: d.LoseSight, now_ms: int) -> None:
    trials.set_unknown(connection, record.trial_id, record.sentence)


def _ask_stop(connection: sqlite3.Connection, record: d.AskStop, now_ms: int) -> None:
    trials.ask_stop(connection, record.trial_id, record.by)


def _lose_job(connection: sqlite3.Connection, record: d.LoseJob, now_ms: int) -> None:
    jobs.lose(connection, record.trial_id, record.attempt, record.message, record.ended_ms)


def _finish(connection: sqlite3.Connection, record: d.Finish, now_ms: int) -> None:
    jobs.close(connection, record.trial_id, record.attempt, may_run=record.may_run)
    trials.finish(
        connection,
        record.trial_id,
        status=record.status,
        reason=record.reason,
        message=record.message,
        ended_ms=record.ended_ms,
        last_words=record.last_words,
        failure_key=record.failure_key,
    )


def _give_up(connection: sqlite3.Connection, record: d.GiveUpAttempt, now_ms: int) -> None:
    jobs.close(connection, record.trial_id, record.attempt, record.account)
    trials.next_attempt(connection, record.trial_id, WaitCode.RETRY, record.sentence)


def _revive(connection: sqlite3.Connection, record: d.ReviveAttempt, now_ms: int) -> None:
    if record.replaced is not None:
        jobs.close(connection, record.trial_id, record.replaced, PLATFORM, may_run=record.may_run)
    missed_jobs.revive(connection, record.trial_id, record.attempt, now_ms)
    trials.revive_attempt(connection, record.trial_id, record.attempt, record.sentence)


def _drop_missed(connection: sqlite3.Connection, record: d.DropMissed, now_ms: int) -> None:
    missed_jobs.drop_missed(connection, record.trial_id, record.attempt)


def _set_wait(connection: sqlite3.Connection, record: d.SetWait, now_ms: int) -> None:
    trials.set_waiting(connection, record.trial_id, record.wait, now_ms)


def _set_status(connection: sqlite3.Connection, record: d.SetStatus, now_ms: int) -> None:
    experiments.set_status(connection, record.status, now_ms, record.error)


def _put_on_hold(connection: sqlite3.Connection, record: d.PutOnHold, now_ms: int) -> None:
    experiments.set_hold(connection, record.hold, now_ms)


def _hold_service(connection: sqlite3.Connection, record: d.HoldService, now_ms: int) -> None:
    services.set_hold(connection, record.service, record.hold)


#: Records that change the experiment's own row.
_OF_THE_EXPERIMENT = {d.AddTrial, d.Finish, d.SetStatus, d.PutOnHold}
_RECORDERS: dict[type, Callable[[sqlite3.Connection, Any, int], None]] = {
    d.AddTrial: _add_trial,
    d.StartAttempt: _start_attempt,
    d.StartTrial: _start_trial,
    d.LoseSight: _lose_sight,
    d.AskStop: _ask_stop,
    d.Finish: _finish,
    d.LoseJob: _lose_job,
    d.GiveUpAttempt: _give_up,
    d.ReviveAttempt: _revive,
    d.DropMissed: _drop_missed,
    d.SetWait: _set_wait,
    d.SetStatus: _set_status,
    d.PutOnHold: _put_on_hold,
    d.HoldService: _hold_service,
}
