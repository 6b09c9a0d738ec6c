"""The classes of storage that trials and manager share."""

from __future__ import annotations

from nni.experiment.config.base import ConfigBase
from nni.experiment.config.training_service import section

__all__ = ["AzureBlobConfig", "NfsConfig"]

NfsConfig = section(
    "NfsConfig",
    "Storage that trials and manager share: NFS.",
    ConfigBase,
    "local_mount_point remote_mount_point local_mounted nfs_server exported_directory",
    more={"_paths": "local_mount_point", "_required": "local_mount_point remote_mount_point local_mounted"},
    storage_type="NFS",
)

AzureBlobConfig = section(
    "AzureBlobConfig",
    "Storage that trials and manager share: Azure Blob.",
    ConfigBase,
    ("local_mount_point remote_mount_point local_mounted storage_account_name storage_account_key container_name"),
    more={"_paths": "local_mount_point", "_required": "local_mount_point remote_mount_point local_mounted"},
    storage_type="AzureBlob",
)
