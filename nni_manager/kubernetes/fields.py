"""Fields that sections of several Kubernetes platforms share, in both of NNI's formats: storage and replicas.

Also which names a cluster's API accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from nni_manager.platform_kit.section_model import (
    DEFAULT_IMAGE,
    OptionalMode,
    Part,
    PlatformSection,
    Remark,
    marked,
    mode_field,
    secret,
)


def _legal(pattern: str, sentence: str) -> AfterValidator:
    """A check of a name by the rules of a cluster's API. `sentence`: the error for invalid names."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(sentence)
        return text

    return AfterValidator(check)


#: The name of a namespace.
Label = Annotated[
    str,
    _legal(
        r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        "must consist of lower case letters, digits and hyphens, at most 63, with no hyphen at either end",
    ),
]
#: The name of a secret, claim, class or account.
Subdomain = Annotated[
    str,
    _legal(
        r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
        "must consist of lower case letters, digits, hyphens, dots; at most 253, with a letter or digit at either end",
    ),
]
#: The name of a node resource: ``nvidia.com/gpu``.
ResourceName = Annotated[
    str,
    _legal(
        r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
        "must be the name of a node resource, such as nvidia.com/gpu",
    ),
]
#: The value of a label.
LabelValue = Annotated[
    str,
    _legal(
        r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
        "must consist of letters, digits, hyphens, underscores, dots; at most 63, with a letter or digit at either end",
    ),
]
#: Kueue's labels of a job: its local queue, and its workload priority class.
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
#: The prefix of the labels and annotations by which objects are found again.
_OWN_PREFIX = "nni-manager/"


def _foreign(names: dict[str, str]) -> dict[str, str]:
    if any(name.startswith(_OWN_PREFIX) for name in names):
        raise ValueError(f"must not contain names that begin with {_OWN_PREFIX}: they mark the objects of experiments")
    return names


#: Labels or annotations of users.
ForeignNames = Annotated[dict[str, str], AfterValidator(_foreign)]


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
        "Path of the same storage on the manager's machine, if mounted; results are then read from it.",
        default=None,
        format="mount-point",
    )
    mode: OptionalMode = mode_field()


class AzureStorage(Part):
    """A file share of Azure; its key lies in a key vault."""

    storage_type: Literal["azureStorage"] = marked("Kind of storage: `azureStorage`.", other_names=_OTHER_NAMES)
    azure_account: str = _name(31, "Name of the storage account.", 3)
    azure_share: str = _name(63, "Name of the file share.", 3)
    key_vault_name: str = _name(127, "Name of the key vault.")
    key_vault_key: str = _name(127, "Name of the vault's entry with the account's key; not a secret.")
    azure_account_key: str | None = secret(
        "Key of the storage account, instead of the one in the key vault.", default=None
    )
    local_mount_point: str | None = marked(
        "Path of the same storage on the manager's machine, if mounted; results are then read from it.",
        default=None,
        format="mount-point",
    )
    mode: OptionalMode = mode_field()
    upload_retry_count: int | None = Field(
        default=None, ge=1, le=99_999, description="Maximum number of retries of an upload to the share."
    )


class PvcStorage(Part):
    """A persistent volume claim of the cluster that is also mounted on the manager's machine."""

    storage_type: Literal["pvc"] = marked("Kind of storage: `pvc`.", other_names=_OTHER_NAMES)
    path: str = Field(min_length=1, description="Path of the volume on the manager's machine.")
    claim_name: Subdomain | None = Field(
        default=None,
        description="Name of the claim. Default: the volumes of the template.",
    )
    mode: OptionalMode = mode_field()


#: Kinds of storage that Kubernetes platforms accept.
AnyStorage = Annotated[NfsStorage | AzureStorage | PvcStorage, Field(discriminator="storage_type")]


#: A role's field with the memory of each of its containers.
ROLE_MEMORY = "memorySize of the role"


class Replica(Part):
    """The fields of one role; they hold for each of its containers."""

    command: str = marked("Shell command of the role.", opaque=True, min_length=1)
    docker_image: str = Field(default=DEFAULT_IMAGE, min_length=1, description="Image of the container.")
    cpu_number: int = Field(gt=0, description="Number of CPU cores.")
    memory_size: int = marked("Memory; stored in MB of 1024 × 1024 bytes.", format="memory", gt=0)
    gpu_number: int = Field(default=0, ge=0, description="Number of GPUs.")
    code_directory: str | None = Field(
        default=None, description="Accepted for compatibility and ignored; set `trialCodeDirectory`."
    )
    private_registry_auth_path: str | None = marked(
        "Docker `config.json` with the login of a private registry.", default=None, format="file"
    )


class PullSecret(Part):
    """A Secret of the cluster with the login for a registry."""

    name: Subdomain = Field(description="Name of the Secret in the namespace.")


class KubernetesSection(PlatformSection):
    """The fields of every Kubernetes platform, in addition to NNI's."""

    namespace: Label = Field(default="default", description="Namespace of all objects.")
    kubeconfig: str | None = marked(
        "Kubeconfig of the cluster. Default: the daemon's `KUBECONFIG`, `~/.kube/config`, or, in a pod, its account.",
        default=None,
        format="file",
    )
    context: str | None = Field(
        default=None, min_length=1, description="Context of the kubeconfig. Default: its current context."
    )
    channel: Literal["push", "pull", "exec"] | None = Field(
        default=None,
        description="Transport of results. `push`: pods connect to this machine. `pull`: the manager reads mounted "
        "storage. `exec`: the manager uses the cluster's API. Default: `pull` if the storage has a `localMountPoint`; "
        "else `push` for pods that reach this machine, and `exec` for the others.",
    )
    pod_template: dict[str, Any] | None = marked(
        "Pod template that is merged last into the pods of every role. List entries are matched by `name`.",
        default=None,
        format="mapping-or-file",
        opaque=True,
    )
    gpu_resource_name: ResourceName | None = Field(
        default=None, description="Resource name of GPUs in the cluster. Default: `nvidia.com/gpu`."
    )
    priority_class_name: Subdomain | None = Field(default=None, description="Priority class of all pods.")
    queue_name: Label | None = Field(
        default=None, description="Local queue of Kueue in which jobs wait for their turn. Default: no queue."
    )
    priority_class: LabelValue | None = Field(
        default=None, description="Kueue's workload priority class of jobs; it orders the queue, not the pods."
    )
    labels: ForeignNames | None = marked("Labels of jobs and their pods.", default=None, opaque=True)
    annotations: ForeignNames | None = marked("Annotations of jobs and their pods.", default=None, opaque=True)

    def job_labels(self) -> dict[str, str]:
        """The labels of a job's object that the section asks for."""
        queue = {QUEUE_LABEL: self.queue_name, PRIORITY_LABEL: self.priority_class}
        return {**(self.labels or {}), **{name: value for name, value in queue.items() if value}}

    @property
    def pod_storage(self) -> NfsStorage | AzureStorage | PvcStorage | None:
        """The storage that pods mount; None: not set, or the platform has no such field."""
        found: NfsStorage | AzureStorage | PvcStorage | None = getattr(self, "storage", None)
        return found

    def replicas(self) -> Iterable[tuple[str, Replica]]:
        """The roles of a job, each with its path in the section."""
        return ()


def storage_fields(section: str) -> dict[str, str]:
    """The storage's paths in the file and in the section. `section`: ``kubeflowConfig`` and the like."""
    return {
        f"{section}.{old}": f"storage.{new}"
        for old, new in {
            "storage": "storageType",
            "nfs.server": "server",
            "nfs.path": "path",
            "azureStorage.accountName": "azureAccount",
            "azureStorage.azureShare": "azureShare",
            "keyVault.vaultName": "keyVaultName",
            "keyVault.name": "keyVaultKey",
            "uploadRetryCount": "uploadRetryCount",
        }.items()
    }


def replica_fields(old: str, new: str) -> dict[str, str]:
    """One role's paths in the file and in the section. `old`, `new`: the paths of the role in them."""
    return {
        f"{old}.{name}": f"{new}.{other}"
        for name, other in {
            "command": "command",
            "gpuNum": "gpuNumber",
            "cpuNum": "cpuNumber",
            "memoryMB": "memorySize",
            "image": "dockerImage",
            "privateRegistryAuthPath": "privateRegistryAuthPath",
        }.items()
    }


def complete_storage(section: dict[str, Any], _config: dict[str, Any]) -> None:
    """Sets a missing kind of storage: a claim if there is only a path, else NFS."""
    storage = section.get("storage")
    if isinstance(storage, dict):
        section["storage"] = {"storageType": "pvc" if set(storage) == {"path"} else "nfs"} | storage


def storage_faults(name: str) -> Callable[[Mapping[str, Any]], Iterator[Remark]]:
    """A function that finds errors in a file's storage. `name`: ``kubeflowConfig`` and the like."""

    def faults(file: Mapping[str, Any]) -> Iterator[Remark]:
        section = file.get(name)
        if not isinstance(section, dict):
            return
        kind = section.get("storage")
        if kind is None and "azureStorage" in section:
            yield f"{name}.storage", "is required with azureStorage and not set; add storage: azureStorage"
        elif kind == "azureStorage" and not ("azureStorage" in section and "keyVault" in section):
            missing = "keyVault" if "azureStorage" in section else "azureStorage"
            yield f"{name}.{missing}", "is required with storage: azureStorage and not set; add it"
        elif kind in ("nfs", "pvc") and kind not in section:
            yield f"{name}.{kind}", f"is required with storage: {kind} and not set; add it"
        elif kind is None and not {"nfs", "pvc"} & section.keys():
            yield f"{name}.nfs", "is required and not set; add the NFS folder that manager and containers share"

    return faults
