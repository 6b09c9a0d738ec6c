"""What tuners need of a search space: its check, its flat form, and proposals without repetition."""

from nni.common.hpo_utils.dedup import Deduplicator
from nni.common.hpo_utils.formatting import (
    ParameterSpec,
    deformat_parameters,
    format_parameters,
    format_search_space,
)
from nni.common.hpo_utils.optimize_mode import OptimizeMode
from nni.common.hpo_utils.validation import validate_search_space

__all__ = [
    "Deduplicator",
    "OptimizeMode",
    "ParameterSpec",
    "deformat_parameters",
    "format_parameters",
    "format_search_space",
    "validate_search_space",
]
