"""Kubernetes platforms in NNI's first format: storage, and the fields of one replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nni_manager.platform_kit.first_format import Remark


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
    """Sets the kind of storage where none is given: NFS, unless there is only a path, as a claim has."""
    storage = section.get("storage")
    if isinstance(storage, dict):
        section["storage"] = {"storageType": "pvc" if set(storage) == {"path"} else "nfs"} | storage


def storage_faults(name: str) -> Callable[[Mapping[str, Any]], Iterator[Remark]]:
    """A function for the faults of a file's storage. `name`: ``kubeflowConfig`` and the like."""

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
            yield f"{name}.nfs", "is required and not set; say where manager and containers share files"

    return faults
