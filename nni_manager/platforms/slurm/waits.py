"""Why a job of Slurm waits, from the reason that `squeue` shows."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nni_manager.domain.clock import milliseconds
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.platforms.slurm.listing import Row

_HELD = {
    "JobHeldUser": "a user holds it; release it with `scontrol release {id}`",
    "JobHeldAdmin": "an administrator holds it",
}
#: Reasons that no waiting removes → what to do.
NEVER: Mapping[str, str] = {
    "PartitionDown": "the partition is down; use another partition",
    "PartitionInactive": "the partition is inactive; use another partition",
    "PartitionConfig": "no node of the partition fits; lower nodeNumber, trialCpuNumber or timeLimit",
    "PartitionTimeLimit": "timeLimit is above the partition's limit; lower timeLimit",
    "PartitionNodeLimit": "nodeNumber is outside the partition's limits; change nodeNumber",
    "BadConstraints": "no node fits constraint; change constraint",
    "AccountNotAllowed": "the account may not use the partition; change account or partition",
    "QOSNotAllowed": "the partition does not allow the QOS; change qos or partition",
    "QOSMaxWallDurationPerJobLimit": "timeLimit is above the QOS's limit; lower timeLimit",
    "QOSTimeLimit": "timeLimit is above the QOS's limit; lower timeLimit",
    "InvalidAccount": "the account is invalid; change account",
    "InvalidQOS": "the QOS is invalid; change qos",
    "DependencyNeverSatisfied": "its dependency failed; change options",
}
#: Reasons of limits on a single job, which no waiting changes.
_PER_JOB = re.compile(r"(QOS|Assoc)(Max\w*Per(Job|Node)(Limit)?|Min\w+)")
_CHANGE_SIZE = (
    "a limit of the account or QOS on a single job; change timeLimit, trialCpuNumber, trialMemorySize, trialGpuNumber"
    " or nodeNumber"
)
#: Reasons of limits on total usage, past jobs included. `RunMinutes` limits count running jobs only.
_BUDGET = re.compile(r"(QOS|Assoc)Grp(?!\w*Run)(\w*Minutes|Wall)(Limit)?")
_RAISE_BUDGET = (
    "the account or QOS has used up its limit, or timeLimit exceeds what is left; lower timeLimit, change account or"
    " qos, or ask the administrator for more"
)
_RESERVED = (
    "the account or QOS has used up its limit, or running jobs reserve the rest up to their time limits until they end"
)
_NOT_PERMITTED = "account not permitted to use this partition"
_QUOTA = re.compile(r"(QOS|Assoc)(Max|Grp|Min)|MaxSubmit|AssociationJobLimit|QOSResourceLimit|QOSUsageThreshold")
#: Estimates of later starts are left out: Slurm counts a year from the start of each job without a time limit.
_FORESEEN_MS = 300 * 24 * 3_600_000
_NO_NODES = re.compile(r"Nodes required for job|ReqNodeNotAvail|^Reservation|NodeDown|UnavailableNodes")
_EXPLAINED = {
    "Priority": "other jobs have a higher priority",
    "Resources": "its resources are in use",
    "BeginTime": "it may not start yet",
    "Dependency": "it waits for another job",
    "Licenses": "it waits for a license",
}


def wait_of(row: Row, now_ms: int, others_run: bool = False) -> Wait:
    """The wait of a pending job. `now_ms`: milliseconds since the epoch; `others_run`: other jobs of the user run."""
    reason = row.reason
    if _BUDGET.fullmatch(reason):
        # with AccountingStorageEnforce=safe a running job counts with its whole time limit, and may end earlier
        is_reserved = others_run and "Minutes" in reason
        return Wait(
            code=WaitCode.QUOTA,
            sentence=f"Slurm says {reason}: {_RESERVED if is_reserved else _RAISE_BUDGET}",
            details={"reason": reason},
            is_hopeless=not is_reserved,
        )
    if advice := never(reason):
        return Wait(
            code=WaitCode.UNSCHEDULABLE,
            sentence=f"Slurm says {reason}: {advice}",
            details={"reason": reason},
            is_hopeless=True,
        )
    if reason in _HELD:
        sentence = f"Slurm says {reason}: {_HELD[reason].format(id=row.id)}"
        return Wait(code=WaitCode.HELD, sentence=sentence, details={"reason": reason})
    if _QUOTA.search(reason):
        sentence = f"Slurm says {reason}: a limit of the account or QOS is reached"
        return Wait(code=WaitCode.QUOTA, sentence=sentence, details={"reason": reason})
    if _NO_NODES.search(reason):
        return Wait(
            code=WaitCode.UNSCHEDULABLE,
            sentence=f"Slurm says {reason}: its nodes are down, drained or reserved",
            details={"reason": reason},
        )
    if not reason:
        return Wait(code=WaitCode.SUBMITTED, sentence="Slurm has not looked at the job yet")
    explained = f": {_EXPLAINED[reason]}" if reason in _EXPLAINED else ""
    starts = starts_at(row.start, now_ms)
    details = {"reason": reason, **({"startsAt": starts} if starts else {})}
    return Wait(code=WaitCode.QUEUED, sentence=f"Slurm says {reason}{explained}", details=details)


def never(reason: str) -> str:
    """What to change if a job with this reason never starts; empty: it may start."""
    if _NOT_PERMITTED in reason:
        return NEVER["AccountNotAllowed"]
    return NEVER.get(reason) or (_CHANGE_SIZE if _PER_JOB.fullmatch(reason) else "")


def starts_at(start: str, now_ms: int) -> str:
    """Slurm's estimate of a start, which it gives in UTC, as an ISO time; empty: none, or an implausible one."""
    moment_ms = milliseconds(f"{start}Z")
    if moment_ms is None or not now_ms <= moment_ms <= now_ms + _FORESEEN_MS:
        return ""
    return f"{start}Z"
