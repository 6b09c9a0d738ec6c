"""The fields of the section `sharedStorage`: a folder that manager and trials mount, as in NNI."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from nni_manager.platform_kit.section_model import Mode, Part, marked, secret

#: How the storage is mounted on the manager's machine.
Mounted = Literal["usermount", "nnimount", "nomount"]


class SharedStorage(Part):
    """The fields of both kinds of shared storage."""

    local_mount_point: str = marked(
        "Mount point on the manager's machine, for the manager and trials of `local`; outside the code directory.",
        format="mount-point",
    )
    remote_mount_point: str = Field(
        min_length=1,
        description="Mount point on machines of `remote` (absolute, or relative to the home folder) and in jobs of "
        "`aml` and `openpai`.",
    )
    local_mounted: Mounted = Field(
        description="How it is mounted on the manager's machine: `usermount` (you mounted it) or `nnimount` (the "
        "manager mounts it). `nomount` is refused, as in NNI."
    )

    mode: Mode = Field(
        default="0700",
        description="Mode of the experiment's folder on the storage. `0711` admits trials of other users, such as in "
        "containers; `0710` those of your group. Jobs of `aml` and `openpai` get at least `0711`.",
    )

    @field_validator("local_mounted")
    @classmethod
    def _is_mounted(cls, mount: str) -> str:
        if mount == "nomount":
            raise ValueError(
                "cannot be nomount, which NNI refuses, too, when the experiment starts: the manager writes to the "
                "storage; mount it yourself (usermount), or let the manager do it (nnimount)"
            )
        return mount


class NfsSharedStorage(SharedStorage):
    """A folder of an NFS server."""

    storage_type: Literal["NFS"] = Field(description="Kind of storage: `NFS`.")
    nfs_server: str = Field(min_length=1, description="Name or address of the server.")
    exported_directory: str = Field(min_length=1, description="Folder that the server exports.")


class AzureBlobSharedStorage(SharedStorage):
    """A container of Azure Blob storage."""

    storage_type: Literal["AzureBlob"] = Field(description="Kind of storage: `AzureBlob`.")
    storage_account_name: str = Field(min_length=1, description="Name of the storage account.")
    storage_account_key: str = secret("Key of the storage account.")
    container_name: str = Field(min_length=1, description="Name of the container.")


KINDS = (NfsSharedStorage, AzureBlobSharedStorage)
