"""Missed attempts: given up because their jobs were unreachable, then observed again.

A job that succeeded counts, unless its trial has ended otherwise. A running job continues if no other attempt has
started; otherwise it is ended.
"""

from __future__ import annotations

from nni_manager.domain.attempt import Attempt
from nni_manager.domain.job import JobState
from nni_manager.domain.trial import OpenTrial
from nni_manager.scheduler.planning.decisions import Decisions, DropMissed, Forget, ReviveAttempt
from nni_manager.scheduler.planning.snapshot import Snapshot


def handle_missed(snapshot: Snapshot, trial: OpenTrial, decisions: Decisions) -> bool:
    """Revives one of the trial's missed attempts, or drops those that no longer count; returns whether it revived
    one."""
    for one in snapshot.stored.missed.get(trial.id, ()):
        if one.is_heard_again and _counts(one, trial):
            if trial.job is None or trial.job.job_name not in snapshot.here.submitting:
                _revive(snapshot, trial, one, decisions)
                return True
        elif one.is_heard_again:
            decisions.records.append(DropMissed(trial_id=trial.id, attempt=one.number))
            decisions.calls.append(_forget(one))
    return False


def forget_missed(snapshot: Snapshot, trial: OpenTrial, decisions: Decisions) -> None:
    """Forgets the missed attempts of a trial that has ended."""
    for one in snapshot.stored.missed.get(trial.id, ()):
        if DropMissed(trial_id=trial.id, attempt=one.number) not in decisions.records:
            decisions.calls.append(_forget(one))


def _counts(one: Attempt, trial: OpenTrial) -> bool:
    if one.state == JobState.LOST:
        return False
    if trial.job is None:
        return True
    return one.state == JobState.SUCCEEDED and not trial.job.has_ended


def _revive(snapshot: Snapshot, trial: OpenTrial, one: Attempt, decisions: Decisions) -> None:
    job = trial.job
    record = ReviveAttempt(
        trial_id=trial.id,
        attempt=one.number,
        replaced=trial.attempt if job is not None else None,
        may_run=job is not None and job.handle is None,
        sentence=f"attempt {one.number} is reachable again after {one.unreachable}",
    )
    decisions.records.append(record)
    if job is not None and job.handle is not None:
        decisions.calls.append(_forget(job))
    decisions.wake_at(snapshot.here.now_ms)


def _forget(job: Attempt) -> Forget:
    return Forget(handle=job.job_handle, service=job.service)
