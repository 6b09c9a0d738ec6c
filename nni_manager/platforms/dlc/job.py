"""The job of an attempt as PAI-DLC expects it: the body of CreateJob, and the tags that identify it."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from nni_manager.domain.job import JobSpec
from nni_manager.platforms.dlc.config import DlcConfig, UserVpc

#: Tags that identify our jobs and their experiments.
TAG_EXPERIMENT, TAG_TRIAL, TAG_JOB, TAG_NONCE = "nni_experiment", "nni_trial", "nni_job", "nni_nonce"
#: The program that prints a replica's name, derived from PAI-DLC's variables; empty for the first container.
_REPLICA = """\
import json, os
task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task") or {}
rank = str(task.get("index", os.environ.get("RANK", "0")))
print("" if rank == "0" else "replica-" + rank)
"""


def start_command(config: DlcConfig, command: Callable[[str], str]) -> str:
    """The command of every container of the job. `command`: of `MountedStorage`, for the named replica."""
    if config.pod_count == 1:
        return command("")
    return f"replica=$(python3 -c {shlex.quote(_REPLICA)}); {command('$replica')}"


def creation(config: DlcConfig, spec: JobSpec, command: str, secrets: Mapping[str, str]) -> dict[str, Any]:
    """The body of CreateJob, without user text. `secrets`: variables for the job's runner only."""
    body: dict[str, Any] = {
        "DisplayName": spec.name,
        "JobType": config.job_type,
        "JobSpecs": [_role(config)],
        "UserCommand": command,
        "DataSources": _sources(config),
        "Envs": {**spec.protocol_environment, **secrets},
        "Settings": {"Tags": tags(spec)},
    }
    if config.workspace_id is not None:
        body["WorkspaceId"] = config.workspace_id
    if (quota := resource(config)) is not None and quota.get("resource_id"):
        body["ResourceId"] = str(quota["resource_id"])
    if config.user_vpc is not None:
        body["UserVpc"] = _network(config.user_vpc)
    return body


def tags(spec: JobSpec) -> dict[str, str]:
    """The tags of a job."""
    found = {TAG_EXPERIMENT: spec.experiment_id, TAG_TRIAL: spec.trial_id, TAG_JOB: spec.name}
    return found | ({TAG_NONCE: spec.nonce} if spec.nonce else {})


def is_ours(item: Mapping[str, Any], spec: JobSpec) -> bool:
    """Whether a listed job belongs to this attempt: names are not unique."""
    if item.get("DisplayName") != spec.name:
        return False
    found = _tags_of(item)
    return all(found.get(name) == value for name, value in tags(spec).items())


def name_of(item: Mapping[str, Any]) -> str:
    """Our name of a listed job; empty: it is not ours."""
    return str(_tags_of(item).get(TAG_JOB, ""))


def _tags_of(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return (item.get("Settings") or {}).get("Tags") or {}


def resource(config: DlcConfig) -> Mapping[str, Any] | None:
    """The resources that the section requests from a quota; None: the section has an instance type."""
    if not config.ecs_spec.lstrip().startswith("{"):
        return None
    found: Mapping[str, Any] = ast.literal_eval(config.ecs_spec)
    return found


def _role(config: DlcConfig) -> dict[str, Any]:
    role: dict[str, Any] = {
        "Type": config.type,
        "Image": config.image,
        "PodCount": config.pod_count,
        "RestartPolicy": "Never",
    }
    quota = resource(config)
    if quota is None:
        return role | {"EcsSpec": config.ecs_spec}
    return role | {"ResourceConfig": _resource_config(quota)}


def _network(vpc: UserVpc) -> dict[str, Any]:
    found = {
        "VpcId": vpc.vpc_id,
        "SecurityGroupId": vpc.security_group_id,
        "SwitchId": vpc.switch_id,
        "ExtendedCIDRs": vpc.extended_cidrs,
        "DefaultRoute": vpc.default_route,
    }
    return {name: value for name, value in found.items() if value is not None}


def _resource_config(quota: Mapping[str, Any]) -> dict[str, str]:
    found = {
        "CPU": str(quota.get("cpu", 1)),
        "Memory": _gibibytes(quota.get("memory", 2)),
        "GPU": str(quota.get("gpu", 0)),
    }
    if quota.get("gputype"):
        found["GPUType"] = str(quota["gputype"])
    if quota.get("shared_memory"):
        found["SharedMemory"] = _gibibytes(quota["shared_memory"])
    return found


def _gibibytes(amount: object) -> str:
    text = str(amount)
    return f"{text}Gi" if text.isdigit() else text


def _sources(config: DlcConfig) -> list[dict[str, str]]:
    """The data sources of a job: the NAS at its configured path; a bucket at the path that its data source sets."""
    nas = {"DataSourceId": config.nas_data_source_id, "MountPath": config.container_storage_mount_point}
    bucket = config.oss_data_source_id
    return [nas] if bucket is None else [nas, {"DataSourceId": bucket}]
