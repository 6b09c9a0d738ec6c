"""The classes of a config, as programs for NNI write them. What is wrong with one, the daemon says at the start."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Dict

_SERVICE = "trial_command trial_code_directory trial_gpu_number nni_manager_ip debug"


class ConfigBase:
    """Fields by name, None where not set. Keywords may be spelled as in Python or as in a file; a name that the class
    does not have raises AttributeError. An attribute that is set later is passed on whatever its name."""

    _names = ""
    _defaults: Dict[str, Any] = {}

    def __init__(self, **given: Any) -> None:
        names = type(self)._names.split()
        known = {_folded(name): name for name in (*names, *self._defaults)}
        unknown = [name for name in given if _folded(name) not in known]
        if unknown:
            raise AttributeError("{} does not have field(s) {}".format(type(self).__name__, ", ".join(unknown)))
        self.__dict__.update(dict.fromkeys(names))
        self.__dict__.update((name, type(value)() if value == [] else value) for name, value in self._defaults.items())
        self.__dict__.update((known[_folded(name)], value) for name, value in given.items())

    def json(self) -> Dict[str, Any]:
        """The fields that are set, in the spelling of experiment files."""
        set_ = ((name, value) for name, value in self.__dict__.items() if value is not None)
        return {_camel(name): _plain(value) for name, value in set_}

    def __repr__(self) -> str:
        fields = ", ".join("{}={!r}".format(name, value) for name, value in self.__dict__.items() if value is not None)
        return "{}({})".format(type(self).__name__, fields)


def _section(name: str, text: str, base: type, names: str, **defaults: Any) -> type:
    """A class of a section. `text`: what it is of; `names`: its fields."""
    return type(name, (base,), {"__doc__": text, "__module__": __name__, "_names": names, "_defaults": defaults})


class AlgorithmConfig(ConfigBase):
    """A tuner or assessor by its name, or a class of the user's own."""

    _names = "name class_name code_directory class_args"

    def json(self) -> Dict[str, Any]:
        return {name: value for name, value in super().json().items() if value != {}}


class CustomAlgorithmConfig(AlgorithmConfig):
    """A class of the user's own."""


#: The names of NNI 2.
TunerConfig = AssessorConfig = AdvisorConfig = AlgorithmConfig

TrainingServiceConfig = _section("TrainingServiceConfig", "Where trials run.", ConfigBase, "platform " + _SERVICE)

LocalConfig = _section(
    "LocalConfig",
    "This machine.",
    TrainingServiceConfig,
    "use_active_gpu max_trial_number_per_gpu gpu_indices reuse_mode " + _SERVICE,
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
)

RemoteConfig = _section(
    "RemoteConfig",
    "Machines that are reached over SSH.",
    TrainingServiceConfig,
    "reuse_mode " + _SERVICE,
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
    platform="openpai",
)

AmlConfig = _section(
    "AmlConfig",
    "Azure Machine Learning.",
    TrainingServiceConfig,
    ("subscription_id resource_group workspace_name compute_target docker_image max_trial_number_per_gpu " + _SERVICE),
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
)

KubeflowConfig = _section(
    "KubeflowConfig",
    "Kubeflow's jobs.",
    TrainingServiceConfig,
    "operator api_version storage worker ps master reuse_mode namespace " + _SERVICE,
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
)

FrameworkControllerConfig = _section(
    "FrameworkControllerConfig",
    "FrameworkController.",
    TrainingServiceConfig,
    "storage service_account_name reuse_mode namespace " + _SERVICE,
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


class ExperimentConfig(ConfigBase):
    """An experiment. ``ExperimentConfig("local")`` has empty algorithms and an empty service, to be filled in."""

    _names = (
        "experiment_name experiment_type search_space_file search_space trial_command trial_code_directory "
        "trial_concurrency trial_gpu_number max_experiment_duration max_trial_number max_trial_duration "
        "nni_manager_ip use_annotation debug log_level experiment_working_directory tuner_gpu_indices tuner assessor "
        "advisor training_service shared_storage"
    )

    def __init__(self, training_service_platform: Any = None, **given: Any) -> None:
        super().__init__(**given)
        #: Where relative paths start.
        self.__dict__["_directory"] = os.getcwd()
        if training_service_platform is not None:
            self.training_service = _service(training_service_platform)
            for name in ("tuner", "assessor", "advisor"):
                if getattr(self, name) is None:
                    setattr(self, name, AlgorithmConfig(class_args={}))

    def json(self) -> Dict[str, Any]:
        fields = {name: value for name, value in super().json().items() if name != "Directory"}
        return {name: value for name, value in fields.items() if name not in _ALGORITHMS or value != {}}


_ALGORITHMS = ("tuner", "assessor", "advisor")


def _service(platform: Any) -> Any:
    if isinstance(platform, list):
        return [_service(one) for one in platform]
    if platform in _SERVICES:
        return _SERVICES[platform]()
    return TrainingServiceConfig(platform=platform)


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def _plain(value: Any) -> Any:
    if isinstance(value, ConfigBase):
        return value.json()
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return os.fspath(value) if hasattr(value, "__fspath__") else value


__all__ = [name for name in dir() if isinstance(globals()[name], type)]
