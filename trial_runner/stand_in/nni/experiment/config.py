"""The classes of a config, as programs for NNI write them. What is wrong with one, the daemon says at the start."""

from __future__ import annotations

import os

from nni.experiment.config_base import ConfigBase

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Dict

_SERVICE = "trial_command trial_code_directory trial_gpu_number nni_manager_ip debug"


def _section(
    name: str, text: str, base: type, names: str, *, parts: Any = None, shown: Any = None, **defaults: Any
) -> type:
    """A class of a section. `text`: what it is of; `names`: its fields; `shown`: NNI's defaults, which are not sent."""
    own = {"__doc__": text, "__module__": __name__, "_names": names, "_defaults": defaults, "_parts": parts or {}}
    return type(name, (base,), {**own, **(shown or {})})


class AlgorithmConfig(ConfigBase):
    """A tuner or assessor by its name, or a class of the user's own."""

    _names = "name class_name code_directory class_args"

    def json(self) -> Dict[str, Any]:
        return {name: value for name, value in super().json().items() if value != {}}


class CustomAlgorithmConfig(AlgorithmConfig):
    """A class of the user's own."""

    code_directory = "."


_IMAGE = "msranni/nni:latest"
#: The names of NNI 2.
TunerConfig = AssessorConfig = AdvisorConfig = AlgorithmConfig

TrainingServiceConfig = _section("TrainingServiceConfig", "Where trials run.", ConfigBase, "platform " + _SERVICE)

LocalConfig = _section(
    "LocalConfig",
    "This machine.",
    TrainingServiceConfig,
    "use_active_gpu max_trial_number_per_gpu gpu_indices reuse_mode " + _SERVICE,
    shown={"max_trial_number_per_gpu": 1, "reuse_mode": False},
    platform="local",
)

RemoteMachineConfig = _section(
    "RemoteMachineConfig",
    "One machine, reached over SSH.",
    ConfigBase,
    (
        "host port user password ssh_key_file ssh_passphrase use_active_gpu max_trial_number_per_gpu gpu_indices "
        "python_path"
    ),
    shown={"port": 22, "ssh_key_file": "~/.ssh/id_rsa", "use_active_gpu": False, "max_trial_number_per_gpu": 1},
)

RemoteConfig = _section(
    "RemoteConfig",
    "Machines that are reached over SSH.",
    TrainingServiceConfig,
    "reuse_mode " + _SERVICE,
    parts={"machine_list": RemoteMachineConfig},
    shown={"reuse_mode": False},
    platform="remote",
    machine_list=[],
)

OpenpaiConfig = _section(
    "OpenpaiConfig",
    "OpenPAI.",
    TrainingServiceConfig,
    (
        "host username token trial_cpu_number trial_memory_size storage_config_name docker_image virtual_cluster "
        "local_storage_mount_point container_storage_mount_point reuse_mode openpai_config openpai_config_file "
    )
    + _SERVICE,
    shown={"docker_image": _IMAGE, "reuse_mode": True},
    platform="openpai",
)

AmlConfig = _section(
    "AmlConfig",
    "Azure Machine Learning.",
    TrainingServiceConfig,
    ("subscription_id resource_group workspace_name compute_target docker_image max_trial_number_per_gpu " + _SERVICE),
    shown={"docker_image": _IMAGE, "max_trial_number_per_gpu": 1},
    platform="aml",
)

DlcConfig = _section(
    "DlcConfig",
    "Alibaba's DLC.",
    TrainingServiceConfig,
    (
        "type image job_type pod_count ecs_spec region workspace_id nas_data_source_id oss_data_source_id "
        "access_key_id access_key_secret local_storage_mount_point container_storage_mount_point "
    )
    + _SERVICE,
    shown={"type": "Worker", "job_type": "TFJob"},
    platform="dlc",
)

K8sStorageConfig = _section(
    "K8sStorageConfig",
    "The storage of a cluster.",
    ConfigBase,
    "storage_type azure_account azure_share key_vault_name key_vault_key server path storage",
)

K8sNfsConfig = _section("K8sNfsConfig", "NFS.", K8sStorageConfig, K8sStorageConfig._names, storage_type="nfs")

K8sAzureStorageConfig = _section(
    "K8sAzureStorageConfig", "Azure Files.", K8sStorageConfig, K8sStorageConfig._names, storage_type="azureStorage"
)

KubeflowRoleConfig = _section(
    "KubeflowRoleConfig",
    "A role of a Kubeflow job.",
    ConfigBase,
    "replicas command gpu_number cpu_number memory_size docker_image code_directory",
    shown={"gpu_number": 0, "docker_image": _IMAGE},
)

KubeflowConfig = _section(
    "KubeflowConfig",
    "Kubeflow's jobs.",
    TrainingServiceConfig,
    "operator api_version storage worker ps master reuse_mode namespace " + _SERVICE,
    parts={"storage": K8sStorageConfig, **dict.fromkeys(("worker", "ps", "master"), KubeflowRoleConfig)},
    shown={"reuse_mode": True, "namespace": "default"},
    platform="kubeflow",
)

FrameworkAttemptCompletionPolicy = _section(
    "FrameworkAttemptCompletionPolicy",
    "When a framework is over.",
    ConfigBase,
    "min_failed_task_count min_succeed_task_count",
)

FrameworkControllerRoleConfig = _section(
    "FrameworkControllerRoleConfig",
    "A role of a framework.",
    ConfigBase,
    ("name docker_image task_number command gpu_number cpu_number memory_size framework_attempt_completion_policy"),
    parts={"framework_attempt_completion_policy": FrameworkAttemptCompletionPolicy},
    shown={"docker_image": _IMAGE},
)

FrameworkControllerConfig = _section(
    "FrameworkControllerConfig",
    "FrameworkController.",
    TrainingServiceConfig,
    "storage service_account_name reuse_mode namespace " + _SERVICE,
    parts={"storage": K8sStorageConfig, "task_roles": FrameworkControllerRoleConfig},
    shown={"reuse_mode": True, "namespace": "default"},
    platform="frameworkcontroller",
    task_roles=[],
)

NfsConfig = _section(
    "NfsConfig",
    "Storage that trials and manager share: NFS.",
    ConfigBase,
    "local_mount_point remote_mount_point local_mounted nfs_server exported_directory",
    storage_type="NFS",
)

AzureBlobConfig = _section(
    "AzureBlobConfig",
    "Storage that trials and manager share: Azure Blob.",
    ConfigBase,
    ("local_mount_point remote_mount_point local_mounted storage_account_name storage_account_key container_name"),
    storage_type="AzureBlob",
)

_SERVICES = {
    kind._defaults["platform"]: kind
    for kind in (
        LocalConfig,
        RemoteConfig,
        OpenpaiConfig,
        AmlConfig,
        DlcConfig,
        KubeflowConfig,
        FrameworkControllerConfig,
    )
}


def _service(**given: Any) -> Any:
    """The section of a service; the mapping itself where NNI has no class for the platform."""
    kind = _SERVICES.get(given.get("platform"))
    return given if kind is None else kind(**given)


def _storage(**given: Any) -> Any:
    kinds = {kind._defaults["storage_type"]: kind for kind in (NfsConfig, AzureBlobConfig)}
    kind = kinds.get(given.get("storage_type", given.get("storageType")))
    return given if kind is None else kind(**given)


_ALGORITHMS = ("tuner", "assessor", "advisor")


class ExperimentConfig(ConfigBase):
    """An experiment. ``ExperimentConfig("local")`` has empty algorithms and an empty service, to be filled in."""

    _names = (
        "experiment_name experiment_type search_space_file search_space trial_command trial_code_directory "
        "trial_concurrency trial_gpu_number max_experiment_duration max_trial_number max_trial_duration "
        "nni_manager_ip use_annotation debug log_level experiment_working_directory tuner_gpu_indices tuner assessor "
        "advisor training_service shared_storage"
    )
    _parts = {
        "training_service": _service,
        "shared_storage": _storage,
        **dict.fromkeys(_ALGORITHMS, AlgorithmConfig),
    }
    experiment_type = "hpo"
    trial_code_directory: Any = "."
    experiment_working_directory: Any = "~/nni-experiments"
    use_annotation = debug = False

    def __init__(self, training_service_platform: Any = None, **given: Any) -> None:
        super().__init__(**given)
        #: Where relative paths start.
        self._directory = os.getcwd()
        if training_service_platform is not None:
            self.training_service = _empty_service(training_service_platform)
            for name in _ALGORITHMS:
                if getattr(self, name) is None:
                    setattr(self, name, AlgorithmConfig(class_args={}))

    @classmethod
    def load(cls, path: Any) -> ExperimentConfig:
        """The config that a YAML or JSON file holds; relative paths start at its folder."""
        from nni_manager.config.reading import yaml_reader

        with open(path, encoding="utf-8") as file:
            fields = yaml_reader.read(file.read(), str(path)).root.value
        if not isinstance(fields, dict):
            raise TypeError("{} holds no mapping of fields".format(path))
        self = cls(**fields)
        self._directory = os.path.dirname(os.path.abspath(path))
        return self

    def validate(self) -> None:
        """Raises ValueError with everything that is wrong."""
        from json import dumps
        from pathlib import Path

        from nni_manager.client.caller import resolve_data_directory
        from nni_manager.config import experiment_file
        from nni_manager.domain.errors import InvalidInput

        try:
            text = dumps(self.json())
            experiment_file.load(text, directory=Path(self._directory), data_directory=resolve_data_directory(None))
        except InvalidInput as error:
            raise ValueError(str(error)) from None

    def json(self) -> Dict[str, Any]:
        return {name: value for name, value in super().json().items() if name not in _ALGORITHMS or value != {}}


def _empty_service(platform: Any) -> Any:
    if isinstance(platform, list):
        return [_empty_service(one) for one in platform]
    if platform in _SERVICES:
        return _SERVICES[platform]()
    _require_known(platform)
    return TrainingServiceConfig(platform=platform)


def _require_known(platform: Any) -> None:
    """Raises ValueError for a platform that nni-manager does not have."""
    from nni_manager.domain.errors import InvalidInput
    from nni_manager.platform_kit import registry

    try:
        registry.find(str(platform))
    except InvalidInput as error:
        raise ValueError("Bad training service platform: {} ({})".format(platform, error)) from None


__all__ = [name for name in dir() if isinstance(globals()[name], type)]
