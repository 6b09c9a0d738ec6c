"""The config section of `dlc` (PAI-DLC). Values arrive canonical, see `platform_kit.section_model`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, field_validator

from nni_manager.domain.experiment import Json
from nni_manager.platform_kit.section_model import (
    OptionalMode,
    Part,
    PlatformSection,
    Remark,
    marked,
    mode_field,
    secret,
)

#: The platform runs at most this number of jobs at a time.
_MOST_AT_A_TIME = 3
_SHARED_ENDPOINT = "pai-dlc-share.aliyuncs.com"
_RESOURCE_FIELDS = ("resource_id", "cpu", "memory", "gpu", "gputype", "shared_memory")
_NUMBERS = ("cpu", "memory", "gpu")


class UserVpc(Part):
    """The VPC network in which a job's containers run."""

    vpc_id: str = Field(min_length=1, description="Id of the VPC.")
    security_group_id: str = Field(min_length=1, description="Id of the security group.")
    switch_id: str | None = Field(default=None, min_length=1, description="Id of the vSwitch. Default: PAI chooses.")
    extended_cidrs: list[str] | None = Field(
        default=None, description="Further address ranges that are reached through the vSwitch, in addition to its own."
    )
    default_route: str | None = Field(
        default=None, min_length=1, description="Gateway of other traffic, by its name in PAI. Default: PAI's."
    )


class DlcConfig(PlatformSection):
    """The fields of ``trainingService: {platform: dlc, …}``."""

    platform: Literal["dlc"] = Field(default="dlc", description="Always `dlc`.")
    type: str = Field(default="Worker", min_length=1, description="Type of the job's role.")
    image: str = Field(min_length=1, description="Image of the container.")
    job_type: Literal["TFJob", "PyTorchJob"] = Field(default="TFJob", description="Kind of job.")
    pod_count: int = marked("Number of containers of a job.", format="whole-number", gt=0)
    ecs_spec: str = Field(
        min_length=1,
        description="Instance type such as `ecs.c6.large`; or, for a dedicated resource group, text such as "
        "`{'resource_id': 'rg1', 'cpu': 4, 'memory': 16, 'gpu': 1, 'gputype': '', 'shared_memory': ''}`.",
    )
    region: str = Field(min_length=1, description="Region of the account, or `share` for the shared endpoint.")
    endpoint: str | None = Field(
        default=None,
        min_length=1,
        description="Address of the service, such as `pai-dlc-vpc.cn-hangzhou.aliyuncs.com` or `http://host:port`. "
        "Default: the region's.",
    )
    workspace_id: str | None = marked(
        "Id of the workspace; the text `None` means not set. Default: the account's.", default=None, format="text"
    )
    nas_data_source_id: str = Field(
        min_length=1, description="Id of the data source of the NAS that manager and jobs share."
    )
    oss_data_source_id: str | None = Field(
        default=None, min_length=1, description="Id of the data source of an OSS bucket."
    )
    user_vpc: UserVpc | None = Field(
        default=None, description="Network in which a job's containers run. Default: PAI's own."
    )
    access_key_id: str = secret("Id of the access key.")
    access_key_secret: str = secret("Secret of the access key.")
    local_storage_mount_point: str = marked(
        "Mount point of the NAS on the manager's machine.", default="/home/admin/workspace/", format="elsewhere"
    )
    container_storage_mount_point: str = marked(
        "Mount point of the NAS in the container.", default="/root/data/", format="absolute"
    )
    storage_mode: OptionalMode = mode_field()

    @property
    def host(self) -> str:
        """Host of the service's API; empty: the region's, which the SDK knows."""
        return self.endpoint or (_SHARED_ENDPOINT if self.region == "share" else "")

    @field_validator("workspace_id")
    @classmethod
    def _drop_none(cls, id: str | None) -> str | None:
        return None if id == "None" else id

    @field_validator("ecs_spec")
    @classmethod
    def _is_resource(cls, spec: str) -> str:
        if spec.lstrip().startswith("{"):
            _check_resource(_resource(spec))
        return spec

    def warnings(self, experiment: Json) -> Iterator[Remark]:
        trials = self.trial_concurrency or experiment.get("trialConcurrency")
        if isinstance(trials, int) and trials > _MOST_AT_A_TIME:
            yield (
                "trialConcurrency",
                f"the platform runs at most {_MOST_AT_A_TIME} jobs at a time; more jobs wait in its queue",
            )


def _resource(spec: str) -> Any:
    try:
        return ast.literal_eval(spec)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _check_resource(resource: Any) -> None:
    known = ", ".join(_RESOURCE_FIELDS)
    if not isinstance(resource, dict):
        raise ValueError(f"begins with {{, but is not a mapping; write {{'resource_id': …}} with {known}")
    for name in resource:
        if name not in _RESOURCE_FIELDS:
            raise ValueError(f"has an unknown key {name!r}; known keys: {known}")
    if not resource.get("resource_id"):
        raise ValueError("has no 'resource_id'; add the quota's id, or write an instance type such as ecs.c6.large")
    for name in _NUMBERS:
        amount = resource.get(name, 1)
        if not str(amount).isdigit():
            raise ValueError(f"has {amount!r} as {name!r}; write a whole number")
