"""`kubeflow` in NNI's first format."""

from __future__ import annotations

from nni_manager.platform_kit.first_format import NAS_MODE, FirstFormat
from nni_manager.platform_kit.kubernetes.first_format import (
    complete_storage,
    replica_fields,
    storage_faults,
    storage_fields,
)
from nni_manager.platforms.kubeflow.config import ROLES

_SECTION = "kubeflowConfig"

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
)
