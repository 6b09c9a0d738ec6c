"""`frameworkcontroller` in NNI's first format."""

from __future__ import annotations

from typing import Any

from nni_manager.platform_kit.first_format import NAS_MODE, FirstFormat
from nni_manager.platform_kit.kubernetes.first_format import (
    complete_storage,
    replica_fields,
    storage_faults,
    storage_fields,
)

_SECTION = "frameworkcontrollerConfig"
_ROLE = "trial.taskRoles[]"
_POLICY = "frameworkAttemptCompletionPolicy"


def _complete(section: dict[str, Any], config: dict[str, Any]) -> None:
    """Completes storage and command: NNI's second format wants a command at its top, which is the first role's."""
    complete_storage(section, config)
    roles = section.get("taskRoles")
    first = roles[0] if isinstance(roles, list) and roles else None
    if isinstance(first, dict) and first.get("command") is not None:
        config.setdefault("trialCommand", first["command"])


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
    ours=("storage.uploadRetryCount", "configPath", "taskRoles[].privateRegistryAuthPath"),
)
