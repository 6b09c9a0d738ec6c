"""The config section of `adl` (AdaptDL). Values arrive canonical, see `platform_kit.section_model`.

NNI has this section only in its first format; the field names here are those of the other platforms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from nni_manager.domain.experiment import Json
from nni_manager.kubernetes.fields import KubernetesSection, PullSecret, Subdomain
from nni_manager.platform_kit.section_model import DEFAULT_IMAGE, TRIAL, FirstFormat, Part, Remark, marked


class Nfs(Part):
    """A folder of an NFS server that every container mounts."""

    server: str = Field(min_length=1, description="Name or address of the NFS server.")
    path: str = Field(min_length=1, description="Folder that the server exports.")
    container_mount_path: str = marked("Path of the folder in the container.", format="absolute")


class Checkpoint(Part):
    """The volume for a job's checkpoints."""

    storage_class: Subdomain = Field(description="Storage class of the volume.")
    storage_size: str = marked("Size of the volume as a Kubernetes quantity, such as `1Gi`.", format="quantity")


class AdlConfig(KubernetesSection):
    """The fields of ``trainingService: {platform: adl, …}``."""

    platform: Literal["adl"] = Field(default="adl", description="Always `adl`.")
    trial_code_directory: str | None = marked(
        "Folder of the code in the image; nothing is copied there. Default: a copy of the top level's.",
        default=None,
        format="elsewhere",
    )
    docker_image: str = Field(default=DEFAULT_IMAGE, min_length=1, description="Image of the container.")
    adaptive: bool = Field(default=False, description="Let the cluster change the number of replicas of a job.")
    trial_cpu_number: int = Field(default=1, gt=0, description="Number of CPU cores of a trial.")
    trial_memory_size: str = marked(
        "Memory of a trial as a Kubernetes quantity, such as `8Gi`.", default="1Gi", format="memory-quantity"
    )
    image_pull_secrets: list[PullSecret] | None = Field(default=None, description="Logins of private registries.")
    nfs: Nfs | None = Field(default=None, description="NFS folder that every container mounts.")
    checkpoint: Checkpoint | None = Field(default=None, description="Volume for checkpoints.")

    @property
    def secret_names(self) -> list[str]:
        """The names of the Secrets with logins of private registries."""
        return [secret.name for secret in self.image_pull_secrets or ()]

    def warnings(self, experiment: Json) -> Iterator[Remark]:
        if self.nni_manager_ip is None and self.channel == "push":
            yield "nniManagerIp", "is not set: trials report to this machine's own address, which pods must reach"


#: The section in NNI's first format.
FIRST_FORMAT = FirstFormat(
    fields={
        "trial.codeDir": "trialCodeDirectory",
        **{old: new for old, new in TRIAL.items() if old != "trial.codeDir"},
        "trial.image": "dockerImage",
        "trial.namespace": "namespace",
        "trial.adaptive": "adaptive",
        "trial.cpuNum": "trialCpuNumber",
        "trial.memorySize": "trialMemorySize",
        "trial.imagePullSecrets[].name": "imagePullSecrets[].name",
        "trial.nfs.server": "nfs.server",
        "trial.nfs.path": "nfs.path",
        "trial.nfs.containerMountPath": "nfs.containerMountPath",
        "trial.checkpoint.storageClass": "checkpoint.storageClass",
        "trial.checkpoint.storageSize": "checkpoint.storageSize",
    },
    required=("trial.codeDir", "trial.command", "trial.gpuNum", "trial.image"),
    only_here=("platform",),
)
