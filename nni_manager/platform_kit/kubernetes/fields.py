"""Fields that sections of several Kubernetes platforms share: storage, and what one replica gets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from nni_manager.platform_kit.kubernetes.legal_names import Label, ResourceName, Subdomain
from nni_manager.platform_kit.section_model import DEFAULT_IMAGE, Part, PlatformSection, marked, secret

#: `storage` is the key that NNI's own Python classes write.
_OTHER_NAMES = ("storage",)


def _name(longest: int, description: str, shortest: int = 1) -> Any:
    """A field for a name as Azure allows it."""
    return Field(pattern=f"^[0-9A-Za-z-]{{{shortest},{longest}}}$", description=description)


class NfsStorage(Part):
    """A folder of an NFS server, mounted into every container."""

    storage_type: Literal["nfs"] = marked("Kind of storage: `nfs`.", other_names=_OTHER_NAMES)
    server: str = Field(min_length=1, description="Name or address of the NFS server.")
    path: str = Field(min_length=1, description="Folder that the server exports.")
    local_mount_point: str | None = marked(
        "Where it is mounted on the manager's machine, if it is: results are then read there.",
        default=None, format="absolute",
    )  # fmt: skip


class AzureStorage(Part):
    """A file share of Azure; its key lies in a key vault."""

    storage_type: Literal["azureStorage"] = marked("Kind of storage: `azureStorage`.", other_names=_OTHER_NAMES)
    azure_account: str = _name(31, "Name of the storage account.", 3)
    azure_share: str = _name(63, "Name of the file share.", 3)
    key_vault_name: str = _name(127, "Name of the key vault.")
    key_vault_key: str = _name(127, "Name of the vault's entry that holds the key; no secret.")
    azure_account_key: str | None = secret("Key of the storage account, in place of the key vault's.", default=None)
    local_mount_point: str | None = marked(
        "Where it is mounted on the manager's machine, if it is: results are then read there.",
        default=None, format="absolute",
    )  # fmt: skip
    upload_retry_count: int | None = Field(
        default=None, ge=1, le=99_999, description="How often an upload to the share is tried again."
    )


class PvcStorage(Part):
    """A persistent volume claim of the cluster, which is mounted on the manager's machine, too."""

    storage_type: Literal["pvc"] = marked("Kind of storage: `pvc`.", other_names=_OTHER_NAMES)
    path: str = Field(min_length=1, description="Where the volume is mounted on the manager's machine.")
    claim_name: Subdomain | None = Field(
        default=None,
        description="Name of the claim. Default: the template's volumes are used as they are.",
    )


#: Kinds that Kubernetes platforms take.
AnyStorage = Annotated[NfsStorage | AzureStorage | PvcStorage, Field(discriminator="storage_type")]


class Replica(Part):
    """The fields of one role: each container of it gets them."""

    command: str = marked("Shell command of the role.", opaque=True, min_length=1)
    docker_image: str = Field(default=DEFAULT_IMAGE, min_length=1, description="Image of the container.")
    cpu_number: int = Field(gt=0, description="CPU cores.")
    memory_size: int = marked("Memory; kept in MB of 1024 × 1024 bytes.", format="memory", gt=0)
    gpu_number: int = Field(default=0, ge=0, description="GPUs.")
    code_directory: str | None = Field(
        default=None, description="Accepted for NNI's sake; the code is `trialCodeDirectory`'s."
    )
    private_registry_auth_path: str | None = marked(
        "A docker `config.json` with the login of a private registry.", default=None, format="file"
    )


class KubernetesSection(PlatformSection):
    """The fields of every Kubernetes platform beside NNI's."""

    namespace: Label = Field(default="default", description="Namespace of all objects.")
    kubeconfig: str | None = marked(
        "How the cluster is reached. Default: `KUBECONFIG` of the daemon, `~/.kube/config`, or, in a pod, its account.",
        default=None, format="file",
    )  # fmt: skip
    context: str | None = Field(
        default=None, min_length=1, description="Context of the kubeconfig. Default: its current one."
    )
    channel: Literal["push", "pull", "exec"] | None = Field(
        default=None,
        description="How results come. `push`: pods reach this machine; `pull`: through storage that is mounted here, "
        "too; `exec`: through the cluster's API, which needs neither. Default: `pull` where the storage has a "
        "`localMountPoint`, else each pod finds out: `push` where it reaches us, `exec` where it does not.",
    )
    pod_template: dict[str, Any] | None = marked(
        "A pod template that is merged last into that of every role; entries of lists that have a name, by it.",
        default=None, opaque=True,
    )  # fmt: skip
    gpu_resource_name: ResourceName | None = Field(
        default=None, description="What the cluster calls a GPU. Default: `nvidia.com/gpu`."
    )
    priority_class_name: Subdomain | None = Field(default=None, description="Priority class of all pods.")
