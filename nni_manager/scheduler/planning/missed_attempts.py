"""Attempts that were given up because their jobs could not be asked about, when something is heard of these again.

Nobody pays twice for a result that is there: a job that ended well counts, unless its trial has ended elsewhere. One
that still runs goes on where no other attempt was started, and is ended otherwise.
"""

from __future__ import annotations

from nni_manager.domain.job import JobState
from nni_manager.scheduler.planning.decisions import Decisions, DropMissed, Forget, ReviveAttempt
from nni_manager.scheduler.planning.snapshot import Snapshot
from nni_manager.store import jobs
from nni_manager.store.jobs import AttemptRow
from nni_manager.store.missed_jobs import Missed
from nni_manager.store.trials import OpenTrial


def hear_missed(snapshot: Snapshot, trial: OpenTrial, decisions: Decisions) -> bool:
    """Whether the trial is at one of these attempts again; those that are heard of too late are dropped."""
    for one in snapshot.missed.get(trial.id, ()):
        if one.is_heard and _counts(one, trial):
            if trial.job is None or trial.job.job_name not in snapshot.here.submitting:
                _revive(snapshot, trial, one, decisions)
                return True
        elif one.is_heard:
            decisions.records.append(DropMissed(trial_id=trial.id, attempt=one.number))
            decisions.calls.append(_forget(one.job))
    return False


def forget_missed(snapshot: Snapshot, trial: OpenTrial, decisions: Decisions) -> None:
    """The trial has ended: nothing is expected of these attempts any more."""
    for one in snapshot.missed.get(trial.id, ()):
        if DropMissed(trial_id=trial.id, attempt=one.number) not in decisions.records:
            decisions.calls.append(_forget(one.job))


def _counts(one: Missed, trial: OpenTrial) -> bool:
    if one.job.state == JobState.LOST:
        return False
    if trial.job is None:
        return True
    has_ended = trial.job.state != jobs.INTENT and JobState(trial.job.state).is_final
    return one.job.state == JobState.SUCCEEDED and not has_ended and trial.job.runner_exit is None


def _revive(snapshot: Snapshot, trial: OpenTrial, one: Missed, decisions: Decisions) -> None:
    job = trial.job
    record = ReviveAttempt(
        trial_id=trial.id, attempt=one.number, replaced=trial.attempt if job is not None else None,
        may_run=job is not None and job.handle is None,
        sentence=f"attempt {one.number} is heard of again after {one.job.unreachable}",
    )  # fmt: skip
    decisions.records.append(record)
    if job is not None and job.handle is not None:
        decisions.calls.append(_forget(job))
    decisions.wake_at(snapshot.here.now_ms)


def _forget(job: AttemptRow) -> Forget:
    assert job.handle is not None, "its platform had taken it"
    return Forget(handle=jobs.parse_handle(job.job_name, job.handle), service=job.service)
