"""The storage of a section: the volume that pods mount, the place where this machine has it, its address for people."""

from __future__ import annotations

from pathlib import Path

from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.fields import AzureStorage, KubernetesSection, NfsStorage, PvcStorage
from nni_manager.kubernetes.jobs.pod import storage_folder
from nni_manager.platform_kit.folder_mode import number
from trial_runner import protocol


def mount_point(config: KubernetesSection) -> Path | None:
    """The folder where the storage is mounted on this machine; None: it is not mounted here."""
    storage = config.pod_storage
    if storage is None:
        return None
    path = storage.path if isinstance(storage, PvcStorage) else storage.local_mount_point
    return Path(path) if path else None


def folder_mode(config: KubernetesSection) -> int:
    """The mode of the experiment's folder on storage that is mounted here, too."""
    return number(config.pod_storage and config.pod_storage.mode)


def channel(config: KubernetesSection) -> str:
    """The channel that carries results. Without one in the section, each pod tests whether it reaches this machine."""
    return config.channel or (protocol.PULL if mount_point(config) else protocol.PUSH_OR_EXEC)


def volume(config: KubernetesSection, azure_secret: str) -> Object | None:
    """The source of the volume; None: pods have an empty folder, or the volumes of a template."""
    match config.pod_storage:
        case NfsStorage(server=server, path=path):
            return {"nfs": {"server": server, "path": path}}
        case AzureStorage(azure_share=share):
            return {"azureFile": {"secretName": azure_secret, "shareName": share, "readOnly": False}}
        case PvcStorage(claim_name=str(claim)):
            return {"persistentVolumeClaim": {"claimName": claim}}
    return None


def address(config: KubernetesSection, spec: JobSpec) -> str:
    """The address of the attempt's folder, as NNI writes it; empty without storage that outlives a pod."""
    folder = storage_folder(spec)
    match config.pod_storage:
        case NfsStorage(server=server, path=path):
            return f"nfs://{server}:{path.rstrip('/')}/{folder}"
        case AzureStorage(azure_account=account, azure_share=share):
            return f"https://{account}.file.core.windows.net/{share}/{folder}"
        case PvcStorage(claim_name=claim, path=path):
            return f"{claim or path}:{folder}"
    return ""
