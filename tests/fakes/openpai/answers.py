"""Jobs in the server's answers."""

from __future__ import annotations

from typing import Any

from tests.fakes.openpai import exits
from tests.fakes.openpai.cluster import COMPLETED, Job, Task, shown_state
from tests.fakes.openpai.runtime import Storage


def summary(job: Job) -> dict[str, Any]:
    """An entry of a list."""
    roles = job.config["taskRoles"].values()
    return {
        "debugId": job.framework,
        "name": job.name,
        "username": job.user,
        "state": job.state,
        "subState": job.shown_sub_state,
        "executionType": "STOP" if job.code == exits.STOPPED else "START",
        "tags": [],
        "retries": job.platform_retries + job.user_retries,
        "retryDetails": _retries(job),
        "retryDelayTime": None,
        "submissionTime": job.submitted_ms,
        "createdTime": job.submitted_ms,
        "launchedTime": job.launched_ms,
        "completedTime": job.completed_ms,
        "appExitCode": job.code if job.sub_state == COMPLETED else None,
        "virtualCluster": virtual_cluster(job.config),
        "totalTaskNumber": sum(role.get("instances", 1) for role in roles),
        "totalGpuNumber": sum(role.get("instances", 1) * role["resourcePerInstance"]["gpu"] for role in roles),
        "totalTaskRoleNumber": len(roles),
        "jobPriority": None,
    }


def detail(job: Job) -> dict[str, Any]:
    """A job with its last attempt."""
    listed, code = summary(job), job.code
    same = (
        "executionType",
        "retries",
        "retryDetails",
        "retryDelayTime",
        "createdTime",
        "launchedTime",
        "completedTime",
    )
    status = {
        "username": job.user,
        "state": job.state,
        "subState": job.shown_sub_state,
        **{key: listed[key] for key in same},
        "submissionTime": job.submitted_ms,
        "attemptId": job.attempt,
        "attemptState": job.state,
        "appId": f"{job.attempt}_{job.framework}",
        "appProgress": int(code is not None),
        "appTrackingUrl": "",
        "appCreatedTime": job.submitted_ms,
        "appLaunchedTime": job.launched_ms,
        "appCompletedTime": job.completed_ms,
        "virtualCluster": listed["virtualCluster"],
        **_end(job),
    }
    roles = {name: _role(job, name) for name in job.config["taskRoles"]}
    names = {key: listed[key] for key in ("debugId", "name", "tags", "jobPriority")}
    return {**names, "jobStatus": status, "taskRoles": roles}


def _end(job: Job) -> dict[str, Any]:
    keys = (
        "appExitCode",
        "appExitSpec",
        "appExitDiagnostics",
        "appExitMessages",
        "appExitTriggerMessage",
        "appExitTriggerTaskRoleName",
        "appExitTriggerTaskIndex",
        "appExitType",
    )
    if job.code is None:
        return dict.fromkeys(keys)
    spec = exits.spec_of(job.code)
    words = f"Pod failed: {spec.phrase}" if job.code else "Pod succeeded"
    messages = {"container": None, "runtime": job.said, "launcher": None if job.said else words}
    return dict(
        zip(keys, (job.code, spec.shown(job.code), words, messages, words, None, None, spec.phrase), strict=True)
    )


def _role(job: Job, name: str) -> dict[str, Any]:
    tasks = [_task(job, task) for task in job.tasks if task.role == name]
    return {"taskRoleStatus": {"name": name}, "taskStatuses": tasks}


def _task(job: Job, task: Task) -> dict[str, Any]:
    log = f"/api/v2/jobs/{job.user}~{job.name}/attempts/{job.attempt}/taskRoles/{task.role}/taskIndex/{task.index}"
    state = job.state if task.code is None else shown_state(COMPLETED, task.code)
    return {
        "taskIndex": task.index,
        "taskState": state,
        "containerId": f"{job.framework}-{task.role}-{task.index}",
        "containerIp": "127.0.0.1",
        "containerNodeName": "worker-1",
        "containerPorts": {},
        "containerGpus": None,
        "containerLog": f"{log}/attempts/0/logs",
        "containerExitCode": task.code,
        "containerExitSpec": None if task.code is None else exits.spec_of(task.code).shown(task.code),
        "containerExitDiagnostics": None,
        "retries": 0,
        "accountableRetries": 0,
        "createdTime": job.submitted_ms,
        "launchedTime": job.launched_ms,
        "completedTime": job.completed_ms,
        "attemptId": 0,
        "attemptState": state,
    }


def _retries(job: Job) -> dict[str, int]:
    return {"user": job.user_retries, "platform": job.platform_retries, "resource": 0}


def virtual_cluster(config: dict[str, Any]) -> str:
    return str((config.get("defaults") or {}).get("virtualCluster") or "default")


def clusters(names: tuple[str, ...]) -> dict[str, Any]:
    """An entry of the list of virtual clusters."""
    nothing = {"cpu": 0, "memory": 0, "gpu": 0}
    much = {"cpu": 64, "memory": 262144, "gpu": 16}
    one = {
        "capacity": 100,
        "usedCapacity": 0,
        "dedicated": False,
        "status": "RUNNING",
        "resourcesUsed": nothing,
        "resourcesGuaranteed": much,
        "resourcesTotal": much,
    }
    return dict.fromkeys(names, one)


def volume(storage: Storage) -> dict[str, Any]:
    """Additional fields in the details of a storage."""
    data = {"server": storage.server, "path": storage.path} if storage.server else {}
    return {"type": "nfs", "data": data, "readOnly": storage.readOnly}
