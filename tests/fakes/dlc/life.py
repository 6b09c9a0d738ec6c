"""Status transitions of a job."""

from __future__ import annotations

from tests.fakes.dlc.containers import Containers
from tests.fakes.dlc.faults import Faults
from tests.fakes.dlc.jobs import ENDED, Job

#: Default seconds from SIGTERM to SIGKILL.
_GRACE_S = 30.0
#: Status → next status of a job without running containers.
_NEXT = {"Creating": "Queuing", "Queuing": "EnvPreparing"}


def advance(job: Job, faults: Faults, containers: Containers, now_s: float) -> bool:
    """Advance by one step, if possible. True: the job must be stored."""
    before = len(job.history)
    if job.status in ENDED:
        return False
    if job.stopped_s is not None:
        _stop(job, containers, now_s)
    elif job.status in _NEXT:
        _wait(job, faults, now_s)
    elif job.containers is not None:
        _follow(job, job.containers, containers, now_s)
    elif faults.pretend_s is not None:
        _pretend(job, faults.pretend_s, now_s)
    else:
        job.containers = containers.start(job.run_id, job.request)
        job.note(now_s, "Running")
    return len(job.history) > before


def _wait(job: Job, faults: Faults, now_s: float) -> None:
    is_over = job.status == "Queuing" and job.is_held
    if not is_over:
        job.note(now_s, _NEXT[job.status])
    if faults.pretend_s is not None and not job.is_held:
        job.note(now_s, "Running")


def _pretend(job: Job, length_s: float, now_s: float) -> None:
    began_s = job.since("Running")
    if began_s is None:
        job.note(now_s, "Running")
    elif now_s - began_s >= length_s:
        job.note(began_s + length_s, "Succeeded")


def _follow(job: Job, count: int, containers: Containers, now_s: float) -> None:
    codes = containers.exit_codes(job.run_id, count)
    if codes is None:
        return
    if any(codes):
        message = f"The exit code of a container of {job.id} is not 0."
        job.note(now_s, "Failed", "JobFailedByUser", message)
    else:
        job.note(now_s, "Succeeded")


def _stop(job: Job, containers: Containers, now_s: float) -> None:
    """Stop a job; running containers get their grace period."""
    if job.containers is None:
        job.note(now_s, "Stopped")
        return
    if job.status != "Stopping":
        containers.terminate(job.run_id, job.containers)
        job.note(now_s, "Stopping")
    settings = job.request.get("Settings") or {}
    grace_s = settings.get("TerminationGracePeriodSeconds") or _GRACE_S
    if containers.exit_codes(job.run_id, job.containers) is not None:
        job.note(now_s, "Stopped")
    elif now_s - (job.stopped_s or now_s) >= grace_s:
        containers.kill(job.run_id, job.containers)


def preempt(job: Job, containers: Containers, now_s: float, restarts: bool, sub_status: str) -> None:
    """Take its machine away. `restarts`: it restarts on another machine, else it fails."""
    if job.containers is not None:
        containers.destroy(job.run_id, job.containers)
    message = "The spot instance was released."
    job.restarts.append(
        {
            "JobRestartCount": len(job.restarts) + 1,
            "OccurPhase": job.status,
            "Reason": message,
            "RestartLevelType": "JobLevel",
            "RestartStatus": "Succeeded" if restarts else "Failed",
            "RestartFailReason": "" if restarts else "No instance is left.",
            "moment_s": now_s,
        }
    )
    job.containers = None
    job.note(now_s, "Restarting" if restarts else "Failed", "SpotInstanceReleased", message, sub_status)
