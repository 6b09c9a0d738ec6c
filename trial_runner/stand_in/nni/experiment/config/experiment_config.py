"""The class of a whole experiment. nni-manager says what is wrong with one when it starts."""

from __future__ import annotations

import os

from nni.experiment.config import shared_storage, training_services
from nni.experiment.config.algorithm import AlgorithmConfig
from nni.experiment.config.base import ConfigBase, read_file
from nni.experiment.config.training_service import TrainingServiceConfig
from nni.experiment.config.utils import canonical_gpu_indices

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Dict, List

__all__ = ["ExperimentConfig"]

_SERVICES = {
    kind._defaults["platform"]: kind
    for kind in (getattr(training_services, name) for name in training_services.__all__)
    if issubclass(kind, TrainingServiceConfig)
}


def _service(**given: Any) -> Any:
    """The section of a service; the mapping itself where NNI has no class for the platform."""
    kind = _SERVICES.get(given.get("platform"))
    return given if kind is None else kind(**given)


def _storage(**given: Any) -> Any:
    kinds = {
        kind._defaults["storage_type"]: kind for kind in (shared_storage.NfsConfig, shared_storage.AzureBlobConfig)
    }
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
    _paths = "search_space_file trial_code_directory experiment_working_directory"
    _required = "trial_concurrency training_service search_space tuner"
    experiment_type = "hpo"
    trial_code_directory: Any = "."
    experiment_working_directory: Any = "~/nni-experiments"
    use_annotation = debug = False

    def __init__(self, training_service_platform: Any = None, **given: Any) -> None:
        super().__init__(**given)
        self._directory = os.getcwd()
        if training_service_platform is not None:
            self.training_service = _empty_service(training_service_platform)
            for name in _ALGORITHMS:
                if getattr(self, name) is None:
                    setattr(self, name, AlgorithmConfig(class_args={}))

    def validate(self) -> None:
        """Raises ValueError with everything that is wrong."""
        from json import dumps
        from pathlib import Path

        from nni_manager.client.caller import resolve_data_directory
        from nni_manager.config import experiment_file
        from nni_manager.domain.errors import InvalidInput

        try:
            text = dumps(self._sent())
            experiment_file.load(text, directory=Path(self._directory), data_directory=resolve_data_directory(None))
        except InvalidInput as error:
            raise ValueError(str(error)) from None

    def _canonicalize(self, parents: List[ConfigBase]) -> None:
        if self.log_level is None:
            self.log_level = "debug" if self.debug else "info"
        self.tuner_gpu_indices = canonical_gpu_indices(self.tuner_gpu_indices)
        for name in _ALGORITHMS:
            if _is_unnamed(getattr(self, name)):
                setattr(self, name, None)
        if self.tuner is None:
            self.tuner, self.advisor = self.advisor, None
        super()._canonicalize(parents)
        if self.search_space_file is not None:
            self.search_space = read_file(self.search_space_file)

    def _sent(self) -> Dict[str, Any]:
        sent = {name: value for name, value in super()._sent().items() if name not in _ALGORITHMS or value != {}}
        if "searchSpaceFile" in sent:  # as with NNI, the file goes first
            sent.pop("searchSpace", None)
        return sent


def _is_unnamed(algorithm: Any) -> bool:
    return isinstance(algorithm, AlgorithmConfig) and algorithm.name is None and algorithm.class_name is None


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
