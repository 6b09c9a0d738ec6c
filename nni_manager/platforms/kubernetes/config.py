"""The config section of `kubernetes`. Values arrive canonical, see `platform_kit.section_model`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from nni_manager.domain.experiment import Json
from nni_manager.kubernetes.fields import AnyStorage, KubernetesSection, PullSecret, Subdomain
from nni_manager.platform_kit.section_model import DEFAULT_IMAGE, Part, Remark, marked

_WEEK_S = 7 * 24 * 3600.0


class Toleration(Part):
    """A taint of nodes that pods tolerate."""

    key: str | None = Field(default=None, min_length=1, description="Key of the taint. Default: every key.")
    operator: Literal["Equal", "Exists"] = Field(default="Equal", description="`Exists` matches every value.")
    value: str | None = Field(default=None, description="Value of the taint.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint. Default: every effect."
    )


class NfsExport(Part):
    """A folder of an NFS server."""

    server: str = Field(min_length=1, description="Name or address of the NFS server.")
    path: str = Field(min_length=1, description="Folder that the server exports.")


class MountedVolume(Part):
    """A volume of the container; exactly one of its sources is set."""

    mount_path: str = marked("Path of the volume in the container.", format="absolute")
    sub_path: str | None = Field(default=None, min_length=1, description="Folder in the volume. Default: its root.")
    read_only: bool = Field(default=False, description="Mount it read-only.")
    claim_name: Subdomain | None = Field(default=None, description="Source: a persistent volume claim, by name.")
    nfs: NfsExport | None = Field(default=None, description="Source: an NFS folder.")
    host_path: str | None = marked("Source: a folder of the node.", default=None, format="absolute")
    secret_name: Subdomain | None = Field(default=None, description="Source: a Secret, by name; a file for each key.")
    config_map_name: Subdomain | None = Field(
        default=None, description="Source: a ConfigMap, by name; a file for each key."
    )

    def sources(self) -> dict[str, object]:
        """The given sources, as volumes of the API."""
        nfs = self.nfs and {"server": self.nfs.server, "path": self.nfs.path}
        found = {
            "persistentVolumeClaim": self.claim_name and {"claimName": self.claim_name},
            "nfs": nfs,
            "hostPath": self.host_path and {"path": self.host_path},
            "secret": self.secret_name and {"secretName": self.secret_name},
            "configMap": self.config_map_name and {"name": self.config_map_name},
        }
        return {name: source for name, source in found.items() if source}


class SecretVariable(Part):
    """Environment variables from a Secret of the namespace."""

    secret_name: Subdomain = Field(description="The Secret, by name.")
    key: str | None = Field(default=None, min_length=1, description="Key in the Secret. Default: every key.")
    variable: str | None = Field(
        default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Name of the variable. Default: the key."
    )


class KubernetesConfig(KubernetesSection):
    """The fields of ``trainingService: {platform: kubernetes, …}``."""

    platform: Literal["kubernetes"] = Field(default="kubernetes", description="Always `kubernetes`.")
    docker_image: str = Field(default=DEFAULT_IMAGE, min_length=1, description="Image of the container.")
    trial_cpu_number: str = marked(
        "CPU cores of a trial as a Kubernetes quantity, such as `2` or `500m`.", default="1", format="quantity"
    )
    trial_memory_size: str = marked(
        "Memory of a trial as a Kubernetes quantity, such as `8Gi`.", default="1Gi", format="memory-quantity"
    )
    storage: AnyStorage | None = Field(
        default=None, description="Storage that containers, and optionally the manager, mount. Default: none."
    )
    image_pull_secrets: list[PullSecret] | None = Field(default=None, description="Logins of private registries.")
    service_account_name: Subdomain | None = Field(
        default=None, description="Service account of the pods, whose token they get. Default: none."
    )
    node_selector: dict[str, str] | None = marked("Labels that a node must have.", default=None, opaque=True)
    tolerations: list[Toleration] | None = Field(default=None, description="Taints of nodes that pods tolerate.")
    volumes: list[MountedVolume] | None = Field(default=None, description="Further volumes of the container.")
    secret_environment: list[SecretVariable] | None = Field(
        default=None, description="Environment variables from Secrets of the namespace."
    )
    ttl: float = marked(
        "Time for which the cluster keeps an ended job that the manager has not removed. Default: `7d`.",
        default=_WEEK_S,
        format="seconds",
        ge=60,
    )

    @property
    def secret_names(self) -> list[str]:
        """The names of the Secrets with logins of private registries."""
        return [secret.name for secret in self.image_pull_secrets or ()]

    def faults(self, experiment: Json) -> Iterator[Remark]:
        for number, volume in enumerate(self.volumes or ()):
            if len(volume.sources()) != 1:
                names = "claimName, nfs, hostPath, secretName, configMapName"
                yield f"volumes[{number}]", f"must have exactly one source ({names}); set one"
        for number, one in enumerate(self.secret_environment or ()):
            if one.variable and not one.key:
                yield f"secretEnvironment[{number}].key", "is required with variable and not set; add it"
