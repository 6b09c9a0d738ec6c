"""Holds of training services that will never start one of their jobs as it is. Pure.

Such a hold lasts as long as the job waits: it is derived from the stored attempts, and ends with them or on `resume`,
which restarts the minute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nni_manager.domain.attempt import Attempt
from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.domain.job import JobState
from nni_manager.domain.trial import OpenTrial
from nni_manager.scheduler.planning.decisions import Decisions
from nni_manager.scheduler.planning.snapshot import ServiceView, Snapshot

#: Milliseconds of a hopeless wait after which its service is on hold.
HOPELESS_AFTER_MS = 60_000


def changed_holds(snapshot: Snapshot, in_play: Sequence[OpenTrial], decisions: Decisions) -> Mapping[str, Hold | None]:
    """Training service → its new hold; None: its hold for a hopeless wait ends. `in_play`: trials with open jobs."""
    if snapshot.is_stopping:
        return {}
    found = {}
    for service in snapshot.services:
        is_ours = service.hold is not None and service.hold.code is HoldCode.NEVER_STARTS
        if service.hold is None or is_ours:
            hold = _hold(snapshot, service, in_play, decisions)
            if hold != service.hold:
                found[service.name] = hold
    return found


def _hold(snapshot: Snapshot, service: ServiceView, in_play: Sequence[OpenTrial], decisions: Decisions) -> Hold | None:
    waiting = [
        (job.hopeless_ms, job)
        for trial in in_play
        if (job := trial.job) is not None and job.service == service.name and _is_seen_to_wait(service, job)
        if job.hopeless_ms is not None
    ]
    if not waiting:
        return None
    since_ms, job = min(waiting)
    if service.hold is None and snapshot.here.now_ms < since_ms + HOPELESS_AFTER_MS:
        decisions.wake_at(since_ms + HOPELESS_AFTER_MS)
        return None
    id_ = snapshot.experiment.id
    sentence = (
        f"{service.name} will never start the job of trial {job.trial_id} as it is: {job.wait_sentence}. Correct the"
        f" cause there; the hold ends when the job starts. Or change or replace the service with `nnictl update"
        f" platform {id_} --file FILE`, then end the waiting trial with `nnictl trial kill {id_} -T {job.trial_id}`"
    )
    return Hold(code=HoldCode.NEVER_STARTS, sentence=sentence)


def _is_seen_to_wait(service: ServiceView, job: Attempt) -> bool:
    """Whether the job waits; while it cannot be observed, no new hold is based on it."""
    is_seen = job.unreachable_ms is None and service.state.is_ready and service.state.away_since_ms is None
    return job.state == JobState.PENDING and (is_seen or service.hold is not None)
