"""The classes of the training services that NNI has."""

from __future__ import annotations

import sys

from nni.experiment.config.base import ConfigBase
from nni.experiment.config.training_service import TrainingServiceConfig, section
from nni.experiment.config.utils import canonical_gpu_indices

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any

_IMAGE = "msranni/nni:latest"


def _refine_local(self: Any) -> None:
    self.gpu_indices = canonical_gpu_indices(self.gpu_indices)
    self.nni_manager_ip = None


def _canonicalize_machine(self: Any, parents: Any) -> None:
    ConfigBase._canonicalize(self, parents)
    self.gpu_indices = canonical_gpu_indices(self.gpu_indices)
    if self.password is not None:
        self.ssh_key_file = None


def _refine_openpai(self: Any) -> None:
    if self.host is not None and "://" not in self.host:
        self.host = "https://" + self.host


def _refine_roles(self: Any) -> None:
    self.trial_command = self.trial_command or ""  # the roles have commands of their own


LocalConfig = section(
    "LocalConfig",
    "This machine.",
    TrainingServiceConfig,
    "use_active_gpu max_trial_number_per_gpu gpu_indices reuse_mode",
    more={"_refine": _refine_local},
    shown={"max_trial_number_per_gpu": 1, "reuse_mode": False},
    platform="local",
)

RemoteMachineConfig = section(
    "RemoteMachineConfig",
    "One machine, reached over SSH.",
    ConfigBase,
    (
        "host port user password ssh_key_file ssh_passphrase use_active_gpu max_trial_number_per_gpu gpu_indices "
        "python_path"
    ),
    more={"_paths": "ssh_key_file", "_required": "host user", "_canonicalize": _canonicalize_machine},
    shown={"port": 22, "ssh_key_file": "~/.ssh/id_rsa", "use_active_gpu": False, "max_trial_number_per_gpu": 1},
)

RemoteConfig = section(
    "RemoteConfig",
    "Machines that are reached over SSH.",
    TrainingServiceConfig,
    "reuse_mode ",
    parts={"machine_list": RemoteMachineConfig},
    more={"_required": "machine_list"},
    shown={"reuse_mode": False},
    platform="remote",
    machine_list=[],
)

OpenpaiConfig = section(
    "OpenpaiConfig",
    "OpenPAI.",
    TrainingServiceConfig,
    (
        "host username token trial_cpu_number trial_memory_size storage_config_name docker_image virtual_cluster "
        "local_storage_mount_point container_storage_mount_point reuse_mode openpai_config openpai_config_file "
    ),
    more={
        "_paths": "local_storage_mount_point openpai_config_file",
        "_required": (
            "host username token trial_cpu_number trial_memory_size storage_config_name local_storage_mount_point "
            "container_storage_mount_point trial_gpu_number"
        ),
        "_refine": _refine_openpai,
    },
    shown={"docker_image": _IMAGE, "reuse_mode": True},
    platform="openpai",
)

AmlConfig = section(
    "AmlConfig",
    "Azure Machine Learning.",
    TrainingServiceConfig,
    ("subscription_id resource_group workspace_name compute_target docker_image max_trial_number_per_gpu "),
    more={"_required": "subscription_id resource_group workspace_name compute_target"},
    shown={"docker_image": _IMAGE, "max_trial_number_per_gpu": 1},
    platform="aml",
)

DlcConfig = section(
    "DlcConfig",
    "Alibaba's DLC.",
    TrainingServiceConfig,
    (
        "type image job_type pod_count ecs_spec region workspace_id nas_data_source_id oss_data_source_id "
        "access_key_id access_key_secret local_storage_mount_point container_storage_mount_point "
    ),
    more={
        "_required": (
            "image pod_count ecs_spec region workspace_id nas_data_source_id access_key_id access_key_secret "
            "local_storage_mount_point container_storage_mount_point"
        )
    },
    shown={"type": "Worker", "job_type": "TFJob"},
    platform="dlc",
)

K8sStorageConfig = section(
    "K8sStorageConfig",
    "The storage of a cluster.",
    ConfigBase,
    "storage_type azure_account azure_share key_vault_name key_vault_key server path storage",
    more={"_required": "storage_type"},
)

K8sNfsConfig = section(
    "K8sNfsConfig", "NFS.", K8sStorageConfig, K8sStorageConfig._names, shown={"storage": "nfs"}, storage_type="nfs"
)

K8sAzureStorageConfig = section(
    "K8sAzureStorageConfig",
    "Azure Files.",
    K8sStorageConfig,
    K8sStorageConfig._names,
    shown={"storage": "azureStorage"},
    storage_type="azureStorage",
)

KubeflowRoleConfig = section(
    "KubeflowRoleConfig",
    "A role of a Kubeflow job.",
    ConfigBase,
    "replicas command gpu_number cpu_number memory_size docker_image code_directory",
    more={"_required": "replicas command cpu_number memory_size"},
    shown={"gpu_number": 0, "docker_image": _IMAGE},
)

KubeflowConfig = section(
    "KubeflowConfig",
    "Kubeflow's jobs.",
    TrainingServiceConfig,
    "operator api_version storage worker ps master reuse_mode namespace ",
    parts={"storage": K8sStorageConfig, **dict.fromkeys(("worker", "ps", "master"), KubeflowRoleConfig)},
    more={"_required": "operator", "_refine": _refine_roles},
    shown={"reuse_mode": True, "namespace": "default"},
    platform="kubeflow",
)

FrameworkAttemptCompletionPolicy = section(
    "FrameworkAttemptCompletionPolicy",
    "When a framework is over.",
    ConfigBase,
    "min_failed_task_count min_succeed_task_count",
    more={"_required": "min_failed_task_count min_succeed_task_count"},
)

FrameworkControllerRoleConfig = section(
    "FrameworkControllerRoleConfig",
    "A role of a framework.",
    ConfigBase,
    ("name docker_image task_number command gpu_number cpu_number memory_size framework_attempt_completion_policy"),
    parts={"framework_attempt_completion_policy": FrameworkAttemptCompletionPolicy},
    more={"_required": "name task_number command cpu_number memory_size"},
    shown={"docker_image": _IMAGE},
)

FrameworkControllerConfig = section(
    "FrameworkControllerConfig",
    "FrameworkController.",
    TrainingServiceConfig,
    "storage service_account_name reuse_mode namespace ",
    parts={"storage": K8sStorageConfig, "task_roles": FrameworkControllerRoleConfig},
    more={"_required": "task_roles", "_refine": _refine_roles},
    shown={"reuse_mode": True, "namespace": "default"},
    platform="frameworkcontroller",
    task_roles=[],
)

#: NNI has a module for each of them.
for _name in ("local", "remote", "openpai", "k8s_storage", "kubeflow", "frameworkcontroller", "aml", "dlc"):
    sys.modules["{}.{}".format(__name__, _name)] = sys.modules[__name__]

__all__ = [name for name in dir() if name.endswith(("Config", "Policy")) and name != "TrainingServiceConfig"]
