"""The config section of `kubeflow`. Values arrive canonical, see `platform_kit.section_model`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from nni_manager.domain.experiment import Json
from nni_manager.kubernetes.fields import (
    AnyStorage,
    KubernetesSection,
    Replica,
    complete_storage,
    replica_fields,
    storage_faults,
    storage_fields,
)
from nni_manager.platform_kit.section_model import NAS_MODE, FirstFormat, Remark

TF = "tf-operator"
PYTORCH = "pytorch-operator"
ROLES = ("worker", "ps", "master")


class Role(Replica):
    """One kind of container of a job."""

    replicas: int = Field(gt=0, description="Number of containers.")


class KubeflowConfig(KubernetesSection):
    """The fields of ``trainingService: {platform: kubeflow, …}``."""

    platform: Literal["kubeflow"] = Field(default="kubeflow", description="Always `kubeflow`.")
    operator: Literal["tf-operator", "pytorch-operator"] = Field(description="Operator that runs the jobs.")
    api_version: Literal["v1alpha2", "v1beta1", "v1beta2", "v1"] = Field(
        description="Version of the operator's API in the cluster."
    )
    storage: AnyStorage | None = Field(
        default=None, description="Storage that containers, and optionally the manager, mount. Default: none."
    )
    worker: Role | None = Field(default=None, description="Workers; required with `tf-operator`.")
    ps: Role | None = Field(default=None, description="Parameter servers; only with `tf-operator`.")
    master: Role | None = Field(default=None, description="Master; required with `pytorch-operator`, and only there.")
    reuse_mode: bool = Field(
        default=True, description="Accepted for NNI's files, without effect: each trial has a job of its own."
    )
    max_trial_number_per_gpu: int | None = Field(
        default=None, gt=0, description="Maximum number of trials that share a GPU."
    )

    def replicas(self) -> Iterator[tuple[str, Role]]:
        return ((name, role) for name in ROLES if (role := getattr(self, name)) is not None)

    @classmethod
    def supplies_command(cls, values: Mapping[str, object]) -> bool:
        return any(isinstance(role := values.get(name), dict) and "command" in role for name in ROLES)

    def faults(self, experiment: Json) -> Iterator[Remark]:
        needed, foreign = ("worker", "master") if self.operator == TF else ("master", "ps")
        if getattr(self, needed) is None:
            yield needed, f"is required with {self.operator} and not set; add it"
        if getattr(self, foreign) is not None:
            yield foreign, f"is not valid with {self.operator}; remove it"


_SECTION = "kubeflowConfig"


def _complete_for_nni(section: dict[str, Any], config: dict[str, Any]) -> None:
    for role in (section[name] for name in ROLES if isinstance(section.get(name), dict)):
        role["codeDirectory"] = config["trialCodeDirectory"]


#: The section in NNI's first format.
FIRST_FORMAT = FirstFormat(
    fields={
        "trial.codeDir": "/trialCodeDirectory",
        f"{_SECTION}.operator": "operator",
        f"{_SECTION}.apiVersion": "apiVersion",
        f"{_SECTION}.namespace": "namespace",
        f"{_SECTION}.reuse": "reuseMode",
        **storage_fields(_SECTION),
        **{old: new for role in ROLES for old, new in replica_fields(f"trial.{role}", role).items()},
        **{f"trial.{role}.replicas": f"{role}.replicas" for role in ROLES},
    },
    required=(
        "trial.codeDir",
        _SECTION,
        *(f"trial.{role}.{name}" for role in ROLES for name in ("gpuNum", "image")),
    ),
    dropped=NAS_MODE,
    complete=complete_storage,
    faults=storage_faults(_SECTION),
    ours=("storage.uploadRetryCount", *(f"{role}.privateRegistryAuthPath" for role in ROLES)),
    complete_for_nni=_complete_for_nni,
)
