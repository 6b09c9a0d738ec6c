"""The storage of a section: the volume that pods mount, the place where this machine has it, its address for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nni_manager.domain.experiment import Json
from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.jobs.pod import storage_folder
from nni_manager.platform_kit.folder_mode import number
from trial_runner import protocol

NFS, AZURE, CLAIM = "nfs", "azureStorage", "pvc"


def storage_of(settings: Json) -> Json:
    """The storage of a section; empty: there is none."""
    storage: Any = settings.get("storage")
    return storage if isinstance(storage, dict) else {}


def mount_point(settings: Json) -> Path | None:
    """The place where the storage is mounted on this machine; None: nowhere."""
    storage = storage_of(settings)
    told = storage.get("localMountPoint") or (storage.get("path") if storage.get("storageType") == CLAIM else None)
    return Path(str(told)) if told else None


def folder_mode(settings: Json) -> int:
    """The mode of the experiment's folder on storage that is mounted here, too."""
    return number(storage_of(settings).get("mode"))


def channel(settings: Json) -> str:
    """The channel by which results come. Where the section names none, pods find out whether they reach us."""
    return str(settings.get("channel") or (protocol.PULL if mount_point(settings) else protocol.PUSH_OR_EXEC))


def volume(settings: Json, azure_secret: str) -> Object | None:
    """The source of the volume; None: pods have nothing but an empty folder, or what a template mounts."""
    storage = storage_of(settings)
    match storage.get("storageType"):
        case "nfs":
            return {"nfs": {"server": storage["server"], "path": storage["path"]}}
        case "azureStorage":
            share = {"secretName": azure_secret, "shareName": storage["azureShare"], "readOnly": False}
            return {"azureFile": share}
        case "pvc" if storage.get("claimName"):
            return {"persistentVolumeClaim": {"claimName": storage["claimName"]}}
    return None


def address(settings: Json, spec: JobSpec) -> str:
    """The address of the attempt's folder, as NNI writes it; empty without storage that outlives a pod."""
    storage, folder = storage_of(settings), storage_folder(spec)
    match storage.get("storageType"):
        case "nfs":
            return f"nfs://{storage['server']}:{str(storage['path']).rstrip('/')}/{folder}"
        case "azureStorage":
            return f"https://{storage['azureAccount']}.file.core.windows.net/{storage['azureShare']}/{folder}"
        case "pvc":
            return f"{storage.get('claimName') or storage['path']}:{folder}"
    return ""
