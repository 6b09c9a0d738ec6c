"""The config section of `frameworkcontroller`. Values arrive canonical, see `platform_kit.section_model`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from nni_manager.domain.experiment import Json
from nni_manager.kubernetes.fields import (
    AnyStorage,
    KubernetesSection,
    PvcStorage,
    Replica,
    Subdomain,
    complete_storage,
    replica_fields,
    storage_faults,
    storage_fields,
)
from nni_manager.platform_kit.section_model import NAS_MODE, FirstFormat, Part, Remark, marked


class CompletionPolicy(Part):
    """The policy that decides when the attempt of a whole framework ends."""

    min_failed_task_count: int = Field(description="Number of failed tasks that fails the job; -1: never.")
    min_succeed_task_count: int = marked(
        "Number of succeeded tasks that completes the job; -1: never.", other_names=("minSucceededTaskCount",)
    )


class TaskRole(Replica):
    """One kind of container of a framework."""

    name: str = Field(
        min_length=1,
        max_length=32,
        description="Unique name of the role. Frameworks keep its lower case letters and digits only.",
    )
    task_number: int = Field(gt=0, description="Number of containers.")
    framework_attempt_completion_policy: CompletionPolicy = Field(description="When the job ends.")


def legal_role_name(name: str) -> str:
    """The name of a role as the API accepts it: ``[a-z0-9]``."""
    return re.sub(r"[^a-z0-9]+", "", name.lower()) or "role"


class FrameworkcontrollerConfig(KubernetesSection):
    """The fields of ``trainingService: {platform: frameworkcontroller, …}``."""

    platform: Literal["frameworkcontroller"] = Field(
        default="frameworkcontroller", description="Always `frameworkcontroller`."
    )
    storage: AnyStorage | None = Field(
        default=None, description="Storage that containers, and optionally the manager, mount. Default: none."
    )
    service_account_name: Subdomain | None = Field(
        default=None, description="Service account of the framework's barrier."
    )
    task_roles: list[TaskRole] | None = Field(
        default=None, min_length=1, description="Roles of the job; required without `configPath`."
    )
    config_path: str | None = marked(
        "Template of the Framework object, with roles, images and commands.",
        default=None,
        format="file",
        holds=("metadata.name", "spec.taskRoles"),
    )
    reuse_mode: bool = Field(
        default=True, description="Accepted for NNI's files, without effect: each trial has a job of its own."
    )
    api_version: str | None = Field(
        default=None, min_length=1, description="Version of the Framework object. Default: the cluster's."
    )
    max_trial_number_per_gpu: int | None = Field(
        default=None, gt=0, description="Maximum number of trials that share a GPU."
    )

    def replicas(self) -> Iterator[tuple[str, TaskRole]]:
        return ((f"taskRoles[{number}]", role) for number, role in enumerate(self.task_roles or ()))

    @classmethod
    def supplies_command(cls, values: Mapping[str, object]) -> bool:
        roles = values.get("taskRoles")
        has_command = isinstance(roles, list) and any(isinstance(role, dict) and "command" in role for role in roles)
        return has_command or "configPath" in values

    def faults(self, experiment: Json) -> Iterator[Remark]:
        if self.task_roles is None and self.config_path is None:
            yield "taskRoles", "is required and not set; add it, or set configPath to a template"
        if isinstance(self.storage, PvcStorage) and self.storage.claim_name is None and self.config_path is None:
            yield "storage.claimName", "is required with storage of type pvc unless a template mounts it; add it"
        names = [legal_role_name(role.name) for role in self.task_roles or ()]
        for number, name in enumerate(names):
            if name in names[:number]:
                sentence = f"becomes {name} in Frameworks, like another role; make its letters and digits unique"
                yield f"taskRoles[{number}].name", sentence


_SECTION = "frameworkcontrollerConfig"
_ROLE = "trial.taskRoles[]"
_POLICY = "frameworkAttemptCompletionPolicy"


def _complete(section: dict[str, Any], config: dict[str, Any]) -> None:
    """Completes storage and command: NNI's second format has a command at the top level, for the first role."""
    complete_storage(section, config)
    roles = section.get("taskRoles")
    first = roles[0] if isinstance(roles, list) and roles else None
    if isinstance(first, dict) and first.get("command") is not None:
        config.setdefault("trialCommand", first["command"])


#: The section in NNI's first format.
FIRST_FORMAT = FirstFormat(
    fields={
        "trial.codeDir": "/trialCodeDirectory",
        f"{_SECTION}.serviceAccountName": "serviceAccountName",
        f"{_SECTION}.namespace": "namespace",
        f"{_SECTION}.configPath": "configPath",
        f"{_SECTION}.reuse": "reuseMode",
        **storage_fields(_SECTION),
        f"{_SECTION}.pvc.path": "storage.path",
        **replica_fields(_ROLE, "taskRoles[]"),
        f"{_ROLE}.name": "taskRoles[].name",
        f"{_ROLE}.taskNum": "taskRoles[].taskNumber",
        f"{_ROLE}.{_POLICY}.minFailedTaskCount": f"taskRoles[].{_POLICY}.minFailedTaskCount",
        f"{_ROLE}.{_POLICY}.minSucceededTaskCount": f"taskRoles[].{_POLICY}.minSucceedTaskCount",
    },
    required=("trial.codeDir", _SECTION, f"{_ROLE}.gpuNum", f"{_ROLE}.image"),
    dropped=NAS_MODE,
    complete=_complete,
    faults=storage_faults(_SECTION),
    ours=("storage.uploadRetryCount", "taskRoles[].privateRegistryAuthPath"),
    only_here=("configPath",),
    complete_for_nni=lambda section, _config: section.setdefault("serviceAccountName", None),
)
