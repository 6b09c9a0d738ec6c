"""What becomes of a job as time passes: from the queue into containers, and to its end. Level-based, as often as one
likes."""

from __future__ import annotations

from tests.fakes.dlc.containers import Containers
from tests.fakes.dlc.faults import Faults
from tests.fakes.dlc.jobs import ENDED, Job

#: Seconds between SIGTERM and SIGKILL where the job says nothing.
_GRACE_S = 30.0


def advance(job: Job, faults: Faults, containers: Containers, now_s: float) -> bool:
    """Whether anything changed."""
    before = (job.status, job.containers, job.is_killed)
    if job.status not in ENDED:
        _advance(job, faults, containers, now_s)
    return before != (job.status, job.containers, job.is_killed)


def _advance(job: Job, faults: Faults, containers: Containers, now_s: float) -> None:
    if faults.pretend_s is not None:
        _pretend(job, faults, faults.pretend_s, now_s)
    elif job.containers is None:
        _wait(job, faults, containers, now_s)
    else:
        _follow(job, job.containers, containers, now_s)


def _pretend(job: Job, faults: Faults, length_s: float, now_s: float) -> None:
    starts_s = job.created_s + faults.start_after_s
    if job.stopped_s is not None:
        job.note(job.stopped_s, "Stopped")
    elif now_s >= starts_s:
        job.note(starts_s, "Running")
        if now_s >= starts_s + length_s:
            job.note(starts_s + length_s, "Succeeded")


def _wait(job: Job, faults: Faults, containers: Containers, now_s: float) -> None:
    if job.stopped_s is not None:
        job.note(now_s, "Stopped")
    elif job.is_held or now_s < job.created_s + faults.start_after_s:
        job.note(now_s, "Queuing")
    else:
        job.note(now_s, "EnvPreparing")
        job.containers = containers.start(job.id, job.request)
        job.note(now_s, "Running")


def _follow(job: Job, count: int, containers: Containers, now_s: float) -> None:
    exit_code = 137 if job.is_killed else containers.exit_code(job.id, count)
    if exit_code is not None:
        job.note(now_s, "Stopped" if job.stopped_s is not None else "Failed" if exit_code else "Succeeded")
        containers.destroy(job.id, count)
    elif job.stopped_s is not None:
        grace_s = (job.request.get("Settings") or {}).get("TerminationGracePeriodSeconds", _GRACE_S)
        if now_s >= job.stopped_s + grace_s:
            job.is_killed = True
            containers.destroy(job.id, count)
