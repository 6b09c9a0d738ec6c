"""Types of parameters, search spaces and results, for annotations."""

from typing import Any, Dict

__all__ = ["ParameterRecord", "Parameters", "SearchSpace", "TrialMetric", "TrialRecord"]

#: The answer of `nni.get_next_parameter`.
Parameters = Dict[str, Any]
#: Name of a parameter → ``_type`` and ``_value``.
SearchSpace = Dict[str, Any]
#: A result.
TrialMetric = float


class TrialRecord(dict):
    """A result of an earlier trial: ``parameter`` and ``value``."""


class ParameterRecord(dict):
    """A trial's parameters: ``parameter_id``, ``parameters``, ``parameter_source``."""
