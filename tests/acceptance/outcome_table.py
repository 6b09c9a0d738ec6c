"""The table of trial outcomes as data: how a job ends, what asks it to stop, and the status of its trial.

A column is an experiment, a row a trial of it. The scripted cluster reports every event a minute late, so a trial can
be asked to stop after its job has ended and before the manager knows: the report then is evidence of its own end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

#: Delay of the cluster's reports, in seconds: a stop request must come within it, and within `REFUSED_AFTER_S` for the
#: job that will be refused.
LATE_S = 60
REFUSED_AFTER_S = 30
#: Seconds that jobs run, and seconds until their start and first result are reported.
DURATION_S, UNTIL_FIRST_RESULT_S = 600, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`rule`: the cluster's script for the job; `attempt`: the evidence that the API shows."""

    rule: Json
    attempt: Json
    message: str = ""
    #: Appended to the message without a stop request.
    suspicion: str = ""
    #: Number of attempts under this rule; the next one succeeds.
    befalls: int = 3
    #: Number of attempts without a stop request.
    attempts: int = 1
    #: Message of the trial if it succeeds without a stop request.
    doubt: str = ""
    #: `givenUp` of its attempts that were followed by another.
    account: str = "PLATFORM"


FORGOTTEN = "the scripted cluster has forgotten this job"
DISPLACED = "the scripted cluster gave the job's place to another"
REMOVED = "the job was cancelled in the scripted cluster"
LIMIT = "the time limit of the scripted cluster ended the job; remove timedOut from its rule"
ROWS = {
    "exit 0": Row(rule={"result": 0.5}, attempt={"state": "SUCCEEDED", "exitCode": 0, "signal": None}),
    "exit 3": Row(
        rule={"exitCode": 3, "stderr": "ValueError: no such layer\n"},
        message="exit code 3",
        attempt={"state": "FAILED", "exitCode": 3, "stderrTail": "ValueError: no such layer\n"},
    ),
    "signal 9": Row(
        rule={"signal": 9},
        attempt={"state": "FAILED", "exitCode": None, "signal": 9},
        message="killed by signal 9 (SIGKILL)",
        suspicion="; the manager did not send it, perhaps the system ran out of memory",
    ),
    "memory, by the platform": Row(
        rule={"exitCode": 137, "reason": "OOMKilled"},
        message="exit code 137",
        attempt={"state": "FAILED", "exitCode": 137, "reason": "OOMKilled", "cause": "OUT_OF_MEMORY"},
    ),
    "memory, by its words": Row(
        rule={"exitCode": 1, "stderr": "MemoryError"},
        message="exit code 1",
        attempt={"state": "FAILED", "exitCode": 1, "stderrTail": "MemoryError"},
    ),
    "GPU memory": Row(
        rule={"exitCode": 1, "stderr": "torch.OutOfMemoryError: CUDA out of memory."},
        attempt={"state": "FAILED", "exitCode": 1},
        message="exit code 1",
    ),
    "preempted": Row(
        rule={"preempted": True}, attempt={"state": "PREEMPTED", "exitCode": None}, message=DISPLACED, attempts=3
    ),
    "preempted twice": Row(
        rule={"preempted": True}, attempt={"state": "PREEMPTED"}, message=DISPLACED, befalls=2, attempts=3
    ),
    "lost": Row(rule={"lost": True}, attempt={"state": "LOST"}, message=FORGOTTEN, attempts=3),
    "lost twice": Row(rule={"lost": True}, attempt={"state": "LOST"}, message=FORGOTTEN, befalls=2, attempts=3),
    "removed": Row(
        rule={"cancelledByPerson": True, "reason": "Quota"},
        message=REMOVED,
        attempt={"state": "CANCELLED", "reason": "Quota", "cause": None},
    ),
    "removed twice": Row(rule={"cancelledByPerson": True}, attempt={"state": "CANCELLED"}, message=REMOVED, befalls=2),
    "timed out": Row(
        rule={"timedOut": True}, message=LIMIT, attempt={"state": "FAILED", "cause": "TIMEOUT", "exitCode": None}
    ),
    "timed out after its result": Row(
        rule={"timedOut": True, "result": 0.5},
        message=LIMIT,
        attempt={"state": "FAILED", "cause": "TIMEOUT"},
        doubt=f"a time limit ended it ({LIMIT}); it counts as successful, because its final result is stored",
    ),
    "displaced by its queue": Row(
        rule={"preempted": True, "uncounted": True},
        message=DISPLACED,
        attempt={"state": "PREEMPTED"},
        befalls=4,
        attempts=5,
        account="UNCOUNTED",
    ),
    "refused": Row(
        rule={"refuseSubmit": "no such queue"},
        message="no such queue",
        attempt={"state": "FAILED", "reason": "", "cause": "SUBMIT_REJECTED", "startedMs": None},
    ),
}

GOOD, CODE = "SUCCEEDED", "FAILED USER_CODE"
USER, BAD, LONG = "USER_CANCELED USER_REQUEST", "EARLY_STOPPED ASSESSOR", "EARLY_STOPPED TIMEOUT"
STOP = "USER_CANCELED EXPERIMENT_STOPPED"
MEMORY, GPU = "FAILED OUT_OF_MEMORY", "FAILED GPU_OUT_OF_MEMORY"
THERE = "SYS_CANCELED CANCELLED_THERE"
TAKEN, GONE, REFUSED = "SYS_CANCELED PREEMPTED", "SYS_CANCELED LOST", "FAILED SUBMIT_REJECTED"
EXPIRED = "FAILED TIMEOUT"
#: No command runs while a job is submitted, so neither assessor nor maxTrialDuration can end its first attempt. A later
#: attempt: `test_assessor_verdict_holds_when_the_next_attempt_is_refused`.
NEVER = REFUSED

COLUMNS = ("no request", "user", "assessor", "maxTrialDuration", "experiment stop")
TABLE = {
    "exit 0": (GOOD, GOOD, GOOD, GOOD, GOOD),
    "exit 3": (CODE, USER, BAD, LONG, STOP),
    "signal 9": (CODE, USER, BAD, LONG, STOP),
    "memory, by the platform": (MEMORY, USER, BAD, LONG, STOP),
    "memory, by its words": (MEMORY, USER, BAD, LONG, STOP),
    "GPU memory": (GPU, USER, BAD, LONG, STOP),
    "preempted": (TAKEN, USER, BAD, LONG, STOP),
    "preempted twice": (GOOD, USER, BAD, LONG, STOP),
    "lost": (GONE, USER, BAD, LONG, STOP),
    "lost twice": (GOOD, USER, BAD, LONG, STOP),
    "removed": (THERE, USER, BAD, LONG, STOP),
    "removed twice": (THERE, USER, BAD, LONG, STOP),
    "timed out": (EXPIRED, USER, BAD, LONG, STOP),
    "timed out after its result": (GOOD, USER, BAD, LONG, STOP),
    "displaced by its queue": (GOOD, USER, BAD, LONG, STOP),
    "refused": (REFUSED, USER, NEVER, NEVER, STOP),
}
#: Reason → `stopRequest` in the API.
REQUESTS = {USER: "USER", BAD: "ASSESSOR", LONG: "TIMEOUT", STOP: "EXPERIMENT_STOPPED"}


def outcome(row: str, column: str) -> tuple[str, str]:
    """(status, reason) of the cell."""
    status, _, reason = TABLE[row][COLUMNS.index(column)].partition(" ")
    return status, reason


def request(row: str, column: str) -> str | None:
    """`stopRequest` of this trial in the API."""
    return None if TABLE[row][COLUMNS.index(column)] == NEVER else REQUESTS.get(TABLE["exit 3"][COLUMNS.index(column)])


def rules(*, is_asked: bool) -> list[Json]:
    """With a stop request (`is_asked`), the first attempt runs long and later ones succeed."""
    run = {"results": [0.1, 0.2], "duration": DURATION_S} if is_asked else {"duration": 0.2}
    refusal = {"delay": REFUSED_AFTER_S}  # when the others are over: a refusal puts the experiment on hold
    return [
        {
            "match": {"sequence": number, "attempt": attempt},
            **(refusal if "refuseSubmit" in row.rule else run),
            **row.rule,
        }
        for number, row in enumerate(ROWS.values())
        for attempt in range(1, 2 if is_asked else row.befalls + 1)
    ] + [{"duration": 0.1, "result": 0.7}]
