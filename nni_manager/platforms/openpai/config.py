"""The config section of `openpai`. Values arrive canonical, see `platform_kit.section_model`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from nni_manager.domain.experiment import Json
from nni_manager.platform_kit.section_model import (
    DEFAULT_IMAGE,
    NAS_MODE,
    TRIAL,
    FirstFormat,
    OptionalMode,
    PlatformSection,
    Remark,
    marked,
    mode_field,
    secret,
)

_JOB = ("openpaiConfig", "openpaiConfigFile")
#: Fields that the user's own job supplies: attribute → field.
_IN_JOB = {
    "trial_gpu_number": "trialGpuNumber",
    "trial_cpu_number": "trialCpuNumber",
    "trial_memory_size": "trialMemorySize",
    "storage_config_name": "storageConfigName",
    "container_storage_mount_point": "containerStorageMountPoint",
}


class OpenpaiConfig(PlatformSection):
    """The fields of ``trainingService: {platform: openpai, …}``."""

    platform: Literal["openpai"] = Field(default="openpai", description="Always `openpai`.")
    host: str = marked("Address of the PAI cluster, with `https://` unless it begins with `http://`.", format="url")
    username: str = Field(min_length=1, description="Account on the cluster.")
    token: str | None = secret("Token from the portal's profile page. Set either this or `password`.", default=None)
    password: str | None = secret("Password, which is exchanged for a token. Set either this or `token`.", default=None)
    trial_cpu_number: int | None = Field(
        default=None, gt=0, description="Number of CPU cores of a trial; required without a job configuration."
    )
    trial_memory_size: int | None = marked(
        "Memory of a trial, `8GB` or a number of MB; required without a job configuration.",
        default=None,
        format="memory",
        gt=0,
    )
    storage_config_name: str | None = marked(
        "Name of the team's storage in PAI; required without a job configuration.",
        default=None,
        old_names=("paiStorageConfigName",),
        min_length=1,
    )
    docker_image: str = Field(default=DEFAULT_IMAGE, min_length=1, description="Image of the container.")
    virtual_cluster: str | None = Field(
        default=None, min_length=1, description="Virtual cluster of the job. Default: the account's."
    )
    local_storage_mount_point: str = marked(
        "Folder on the manager's machine where the team's storage is mounted.",
        format="manager-directory",
        old_names=("nniManagerNFSMountPath",),
    )
    container_storage_mount_point: str | None = marked(
        "Mount point of the same storage in the container; required without a job configuration.",
        default=None,
        format="absolute",
        old_names=("containerNFSMountPath",),
    )
    storage_mode: OptionalMode = mode_field()
    reuse_mode: bool = Field(
        default=True, description="Accepted for compatibility; it has no effect: every trial has its own job."
    )
    openpai_config: dict[str, Any] | None = marked(
        "Job configuration in PAI's protocol 2, with image, resources, storage and command.", default=None, opaque=True
    )
    openpai_config_file: str | None = marked(
        "File with such a job configuration. Set either this or `openpaiConfig`.",
        default=None,
        format="file",
        holds=("taskRoles",),
        old_names=("paiConfigPath",),
    )
    reporter: str | None = Field(
        default=None,
        min_length=1,
        description="Task role in the job configuration whose first task reports results. Default: the first role.",
    )

    @classmethod
    def supplies_command(cls, values: Mapping[str, object]) -> bool:
        return any(name in values for name in _JOB)

    @field_validator("openpai_config")
    @classmethod
    def _has_roles(cls, job: dict[str, Any] | None) -> dict[str, Any] | None:
        if job is not None and not isinstance(job.get("taskRoles"), dict):
            raise ValueError("must have taskRoles, a mapping of names to roles")
        return job

    def faults(self, experiment: Json) -> Iterator[Remark]:
        if self.openpai_config is not None and self.openpai_config_file is not None:
            yield "openpaiConfigFile", "openpaiConfig is set, too; remove one of the two"
        if (self.token is None) == (self.password is None):
            which = "is required and not set; add it" if self.token is None else "password is set, too; remove one"
            yield "token", which
        if self.openpai_config is None and self.openpai_config_file is None:
            yield from self._missing()

    def _missing(self) -> Iterator[Remark]:
        for attribute, name in _IN_JOB.items():
            if getattr(self, attribute) is None:
                yield name, "is required and not set; add it, or add a job configuration that contains it"


_YARN = "belongs to PAI on YARN, which no longer exists"
_NO_GPU_SHARING = "PAI gives whole GPUs to trials"


def _faults(file: Mapping[str, Any]) -> Iterator[Remark]:
    trial = file.get("trial")
    if isinstance(trial, dict) and isinstance(shm := trial.get("shmMB"), int):
        memory = trial.get("memoryMB")
        if isinstance(memory, int) and shm > memory:
            yield "trial.shmMB", f"must be at most trial.memoryMB, {memory}"


#: The section in NNI's first format.
FIRST_FORMAT = FirstFormat(
    fields={
        **TRIAL,
        "trial.cpuNum": "trialCpuNumber",
        "trial.memoryMB": "trialMemorySize",
        "trial.image": "dockerImage",
        "trial.virtualCluster": "virtualCluster",
        "trial.paiStorageConfigName": "storageConfigName",
        "trial.paiConfigPath": "openpaiConfigFile",
        "trial.nniManagerNFSMountPath": "localStorageMountPoint",
        "trial.containerNFSMountPath": "containerStorageMountPoint",
        "paiConfig.userName": "username",
        "paiConfig.token": "token",
        "paiConfig.passWord": "password",
        "paiConfig.host": "host",
        "paiConfig.reuse": "reuseMode",
        "paiConfig.gpuNum": "/trialGpuNumber",
        "paiConfig.cpuNum": "trialCpuNumber",
        "paiConfig.memoryMB": "trialMemorySize",
    },
    required=("trial.codeDir", "trial.nniManagerNFSMountPath", "trial.containerNFSMountPath", "paiConfig"),
    dropped={
        **NAS_MODE,
        "paiConfig.maxTrialNumPerGpu": _NO_GPU_SHARING,
        "paiConfig.useActiveGpu": _NO_GPU_SHARING,
        "trial.authFile": _YARN,
        "trial.shmMB": _YARN,
        "trial.dataDir": _YARN,
        "trial.outputDir": _YARN,
        "trial.portList": _YARN,
    },
    faults=_faults,
    only_here=("password",),
    complete_for_nni=lambda section, _config: section.setdefault("virtualCluster", None),
)
