"""What the rest-server says of a job, in its own fields."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.fakes.openpai.cluster import EXITS, Job

_BEFORE_COMPLETED = 0


def summary(job: Job) -> dict[str, Any]:
    return {
        "debugId": hashlib.md5(f"{job.user}~{job.name}".encode()).hexdigest(),
        "name": job.name,
        "username": job.user,
        "state": job.state,
        "subState": job.sub_state,
        "executionType": "STOP" if job.is_stopping else "START",
        "tags": [],
        "retries": job.retries,
        "retryDetails": {"user": 0, "platform": job.retries, "resource": 0},
        "retryDelayTime": None,
        "submissionTime": job.submitted_ms,
        "createdTime": job.submitted_ms,
        "launchedTime": job.started_ms,
        "completedTime": job.completed_ms,
        "appExitCode": job.exit_code,
        "virtualCluster": job.virtual_cluster,
        "totalGpuNumber": sum(count * gpu for _, count, gpu in job.roles.values()),
        "totalTaskNumber": sum(count for _, count, _ in job.roles.values()),
        "totalTaskRoleNumber": len(job.roles),
        "jobPriority": None,
    }


def detail(job: Job) -> dict[str, Any]:
    known = EXITS.get(job.exit_code or _BEFORE_COMPLETED)
    spec = None
    if known is not None:
        spec = {"code": job.exit_code, "phrase": known[0], "type": known[1], "issuer": "PAI_K8S", "reason": known[0]}
    kept = (
        "username", "state", "subState", "executionType", "retries", "retryDetails", "retryDelayTime",
        "submissionTime", "createdTime", "launchedTime", "completedTime", "appExitCode", "virtualCluster",
    )  # fmt: skip
    entry = summary(job)
    return {
        "debugId": entry["debugId"],
        "name": job.name,
        "tags": [],
        "jobStatus": {
            **{name: entry[name] for name in kept},
            "attemptId": job.retries,
            "attemptState": job.state,
            "appId": entry["debugId"],
            "appCreatedTime": job.submitted_ms,
            "appLaunchedTime": job.started_ms,
            "appCompletedTime": job.completed_ms,
            "appExitSpec": spec,
            "appExitDiagnostics": None if job.exit_code is None else f"exit code {job.exit_code}",
            "appExitTriggerMessage": None,
            "appExitTriggerTaskRoleName": None,
            "appExitTriggerTaskIndex": None,
            "appExitType": None if spec is None else spec["type"],
        },
        "taskRoles": {},
    }
