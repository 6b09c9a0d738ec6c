"""The classes of a config, as programs for NNI write them."""

from nni.experiment.config.algorithm import *  # noqa: F403
from nni.experiment.config.base import ConfigBase
from nni.experiment.config.experiment_config import ExperimentConfig
from nni.experiment.config.shared_storage import *  # noqa: F403
from nni.experiment.config.training_service import TrainingServiceConfig
from nni.experiment.config.training_services import *  # noqa: F403

__all__ = [
    "ConfigBase",
    "ExperimentConfig",
    "TrainingServiceConfig",
    *algorithm.__all__,  # noqa: F405
    *shared_storage.__all__,  # noqa: F405
    *training_services.__all__,  # noqa: F405
]
