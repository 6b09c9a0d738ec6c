"""The fake's own validation rules, in addition to the vendor's schema if that is available."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from tests.fakes import contracts
from tests.fakes.dlc.answers import Refused

SCHEMA = "pai-dlc/dlc-2020-12-03.derived.schema.json"
#: Job type → its roles.
ROLES: Mapping[str, Collection[str]] = {
    "TFJob": ("Chief", "PS", "Worker", "Evaluator", "GraphLearn"),
    "PyTorchJob": ("Worker", "Master"),
    "XGBoostJob": ("Worker", "Master"),
    "OneFlowJob": ("Worker", "Master"),
    "ElasticBatchJob": ("Worker", "Master"),
    "MPIJob": ("Worker", "Master"),
    "RayJob": ("Head", "Worker"),
    "SlurmJob": ("Worker",),
    "DataJuicerJob": ("Worker",),
}
#: Existing public instance types.
INSTANCE_TYPES = {
    "ecs.c6.large": {"CPU": 2, "GPU": 0, "Memory": 4, "AcceleratorType": "CPU"},
    "ecs.g6.xlarge": {"CPU": 4, "GPU": 0, "Memory": 16, "AcceleratorType": "CPU"},
    "ecs.gn6v-c8g1.2xlarge": {"CPU": 8, "GPU": 1, "Memory": 32, "AcceleratorType": "GPU"},
}
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_AMOUNT = re.compile(r"[1-9][0-9]*(Gi|Mi)")


def check_creation(
    body: Any, *, sources: Collection[str], quotas: Collection[str], workspaces: Collection[str]
) -> None:
    """Raises Refused."""
    if not isinstance(body, dict):
        raise _invalid("the body is not a JSON object")
    if fault := contracts.fault(SCHEMA, "CreateJobRequest", body):
        raise _invalid(fault)
    for name in ("DisplayName", "JobType", "JobSpecs", "UserCommand"):
        if not body.get(name):
            raise Refused(400, "MissingParameter", f"{name} is required.")
    if not _NAME.fullmatch(body["DisplayName"]):
        raise _invalid("DisplayName may have up to 256 letters, digits, underscores, periods and hyphens")
    if body["JobType"] not in ROLES:
        raise _invalid(f"JobType {body['JobType']} is not supported")
    if body.get("WorkspaceId") and body["WorkspaceId"] not in workspaces:
        raise Refused(403, "Forbidden.Workspace", f"You have no permission for workspace {body['WorkspaceId']}.")
    for spec in body["JobSpecs"]:
        _check_spec(spec, body, quotas)
    for source in body.get("DataSources", ()):
        _check_source(source, sources)
    if body.get("UserVpc"):
        _check_network(body["UserVpc"])
    if not all(isinstance(value, str) for value in body.get("Envs", {}).values()):
        raise _invalid("Envs: values are text")


def _check_spec(spec: Mapping[str, Any], body: Mapping[str, Any], quotas: Collection[str]) -> None:
    if spec.get("Type") not in ROLES[body["JobType"]]:
        raise _invalid(f"JobSpecs: a {body['JobType']} has no role {spec.get('Type')}")
    if not spec.get("Image"):
        raise _invalid("JobSpecs: Image is required")
    if not isinstance(spec.get("PodCount"), int) or spec["PodCount"] < 1:
        raise _invalid("JobSpecs: PodCount must be 1 or more")
    if body.get("ResourceId"):
        _check_quota(spec, body["ResourceId"], quotas)
    elif spec.get("EcsSpec") not in INSTANCE_TYPES:
        raise Refused(400, "InvalidEcsSpec", f"EcsSpec {spec.get('EcsSpec')} does not exist in this region.")


def _check_quota(spec: Mapping[str, Any], quota: str, quotas: Collection[str]) -> None:
    if quota not in quotas:
        raise Refused(400, "InvalidResourceId", f"Resource quota {quota} does not exist.")
    resources = spec.get("ResourceConfig")
    if not resources or spec.get("EcsSpec"):
        raise _invalid("JobSpecs: with a ResourceId comes a ResourceConfig and no EcsSpec")
    if not resources.get("CPU", "").isdigit() or not _AMOUNT.fullmatch(resources.get("Memory", "")):
        raise _invalid("ResourceConfig: CPU is a number and Memory an amount such as 16Gi, both as text")


def _check_source(source: Mapping[str, Any], sources: Collection[str]) -> None:
    if source.get("DataSourceId") not in sources:
        raise Refused(404, "DataSourceNotFound", f"Data source {source.get('DataSourceId')} does not exist.")
    if not source.get("MountPath", "/").startswith("/"):
        raise _invalid("DataSources: MountPath is absolute")


def _check_network(network: Mapping[str, Any]) -> None:
    if not network.get("VpcId") or not network.get("SecurityGroupId"):
        raise Refused(400, "MissingParameter", "UserVpc: VpcId and SecurityGroupId are required.")
    if network.get("SwitchId") and not network.get("ExtendedCIDRs"):
        raise Refused(400, "MissingParameter", "UserVpc: with a SwitchId, ExtendedCIDRs are required.")


def _invalid(message: str) -> Refused:
    return Refused(400, "InvalidParameter", message)
