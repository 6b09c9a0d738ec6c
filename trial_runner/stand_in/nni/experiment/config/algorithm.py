"""The classes of a tuner and an assessor."""

from __future__ import annotations

from nni.experiment.config.base import ConfigBase

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Dict

__all__ = ["AdvisorConfig", "AlgorithmConfig", "AssessorConfig", "CustomAlgorithmConfig", "TunerConfig"]


class AlgorithmConfig(ConfigBase):
    """A tuner or assessor by its name, or a class of the user's own."""

    _names = "name class_name code_directory class_args"
    _paths = "code_directory"

    def _sent(self) -> Dict[str, Any]:
        return {name: value for name, value in super()._sent().items() if value != {}}


class CustomAlgorithmConfig(AlgorithmConfig):
    """A class of the user's own."""

    code_directory = "."
    _required = "class_name"


#: The names of NNI 2.
TunerConfig = AssessorConfig = AdvisorConfig = AlgorithmConfig
