"""The states of Slurm as job states::

    PENDING        PENDING     CONFIGURING   PENDING     REQUEUED      PENDING
    REQUEUE_FED    PENDING     REQUEUE_HOLD  PENDING     SPECIAL_EXIT  PENDING
    RESV_DEL_HOLD  PENDING     RUNNING       RUNNING     COMPLETING    RUNNING
    STAGE_OUT      RUNNING     SIGNALING     RUNNING     STOPPED       RUNNING
    SUSPENDED      RUNNING     RESIZING      RUNNING     COMPLETED     SUCCEEDED
    FAILED         FAILED      OUT_OF_MEMORY FAILED      TIMEOUT       FAILED
    DEADLINE       FAILED      CANCELLED     CANCELLED   PREEMPTED     PREEMPTED
    NODE_FAIL      LOST        BOOT_FAIL     LOST        REVOKED       LOST

COMPLETING is not an end: processes of the job may still run. The manager cancels a job that was requeued in spite of
`--no-requeue`. It is RUNNING until Slurm has ended it, and then PREEMPTED, so that the next attempt runs alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import now_ms
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.platforms.slurm.listing import Row
from nni_manager.platforms.slurm.waits import wait_of
from nni_manager.web_services.jobs import StateTable

STATES: Mapping[str, JobState] = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"), JobState.PENDING),
    **dict.fromkeys(("SPECIAL_EXIT", "RESV_DEL_HOLD"), JobState.PENDING),
    **dict.fromkeys(("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING"), JobState.RUNNING),
    **dict.fromkeys(("STOPPED", "SUSPENDED", "RESIZING"), JobState.RUNNING),
    "COMPLETED": JobState.SUCCEEDED,
    **dict.fromkeys(("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE"), JobState.FAILED),
    "CANCELLED": JobState.CANCELLED,
    "PREEMPTED": JobState.PREEMPTED,
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL", "REVOKED"), JobState.LOST),
}
#: Slurm's state → job state.
job_state = StateTable("Slurm", STATES).state
_CAUSES = {"OUT_OF_MEMORY": Reason.OUT_OF_MEMORY, "TIMEOUT": Reason.TIMEOUT, "DEADLINE": Reason.TIMEOUT}
_MESSAGES = {
    "OUT_OF_MEMORY": "the job exceeded its memory. Raise trialMemorySize.",
    "TIMEOUT": "Slurm ended the job: it reached its time limit. Raise timeLimit.",
    "DEADLINE": "Slurm ended the job: it reached its deadline. Remove --deadline from options.",
    "PREEMPTED": "Slurm preempted the job",
    "NODE_FAIL": "the job's node failed",
    "BOOT_FAIL": "the job's node did not start",
    "REVOKED": "another cluster of the federation took the job",
}
#: Exit status of a job whose folder or output file could not be used: nothing ran.
_UNUSABLE_FOLDER = 53
#: What slurmstepd prints where Slurm itself ends jobs over their memory; accounting shows only signal 9.
_OVER_MEMORY = re.compile(r"exceeded memory limit .*being killed|oom[-_ ]kill", re.IGNORECASE)


def report(row: Row, complaint: str = "", user: str = "", others_run: bool = False) -> Observation:
    """The report on a job.

    `complaint`: the end of its error file; `user`: the name of `row.by`, if known; `others_run`: as in `wait_of`.
    """
    suspended = "suspended on Slurm" if row.state in ("SUSPENDED", "STOPPED") else ""
    node = f"node {row.nodes}" if row.nodes else ""
    return replace(_judged(row, complaint, user, others_run), place=", ".join(filter(None, (node, suspended))))


def _judged(row: Row, complaint: str, user: str, others_run: bool) -> Observation:
    state = job_state(row.state)
    if row.restarts:
        return _requeued(row)
    if state is JobState.PENDING:
        return Observation(state=state, wait=wait_of(row, now_ms(), others_run))
    if state is JobState.RUNNING:
        return Observation(state=state)
    if state is JobState.CANCELLED:
        by = f" by {user or f'user {row.by}'}" if user or row.by else ""
        return Observation(state=state, native_reason=row.state, message=f"the job was cancelled on Slurm{by}")
    if state is JobState.FAILED:
        return _failed(row, complaint)
    exit_code = 0 if state is JobState.SUCCEEDED else None
    return Observation(
        state=state,
        exit_code=exit_code,
        native_reason="" if state in (JobState.SUCCEEDED, JobState.UNKNOWN) else row.state,
        message=_MESSAGES.get(row.state, ""),
    )


def _requeued(row: Row) -> Observation:
    if row.is_open:  # another attempt now could run next to it
        return Observation(state=JobState.RUNNING, message="the job was requeued on Slurm; the manager cancels it")
    message = "the job was requeued on Slurm, and the manager cancelled it"
    return Observation(state=JobState.PREEMPTED, native_reason="REQUEUED", message=message)


def _failed(row: Row, complaint: str) -> Observation:
    cause, message = _CAUSES.get(row.state), _MESSAGES.get(row.state, "")
    native = row.state if cause is not None else row.reason or row.state
    if row.state == "FAILED" and row.signal and _OVER_MEMORY.search(complaint):
        cause, message, native = Reason.OUT_OF_MEMORY, _MESSAGES["OUT_OF_MEMORY"], "OverMemoryKill"
    elif row.state == "FAILED" and row.exit_code == 0 and row.signal == _UNUSABLE_FOLDER:
        return Observation(
            state=JobState.FAILED,
            native_reason=native,
            cause=Reason.SUBMIT_REJECTED,
            message="its node cannot use the attempt's folder. Set folder to storage that all nodes share.",
        )
    exit_code, signal = row.exit_code or None, row.signal or None
    if cause is not None:
        exit_code = signal = None  # Slurm's own, not the command's
    if not message and row.is_uncertain and exit_code is not None and exit_code < 128:
        message = f"exit code {exit_code} or {exit_code + 128}: accounting before Slurm 25.11 leaves out 128"
        exit_code = None
    if not message and row.is_incomplete:
        message = "Slurm does not report its exit code"
    return Observation(
        state=JobState.FAILED,
        exit_code=exit_code,
        signal=signal,
        native_reason=native,
        cause=cause,
        message=message,
        stderr_tail=complaint,
    )
