"""The flat form of a search space and of parameters, also where choices hold dimensions of their own.

A key is the path of a dimension: names, and the index of a choice before each name inside it. The flat value of a
choice is its index, that of a ``randint`` the distance from its lower bound, that of a logarithmic dimension the
logarithm.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from nni.typehint import Parameters, SearchSpace

__all__ = ["ParameterSpec", "deformat_parameters", "format_parameters", "format_search_space"]

ParameterKey = Tuple[Any, ...]
FormattedParameters = Dict[ParameterKey, Any]
FormattedSearchSpace = Dict[ParameterKey, "ParameterSpec"]


class ParameterSpec(NamedTuple):
    """One dimension. Bounds, `mu` and `sigma` are those of the logarithm where `log_distributed`."""

    name: str
    #: ``_type`` and ``_value`` of the search space.
    type: str
    values: List[Any]
    key: ParameterKey
    #: Whether it is a choice or a ``randint``; then `size` is the number of its values.
    categorical: bool
    size: Optional[int] = None
    #: How many values are chosen.
    chosen_size: Optional[int] = 1
    low: Optional[float] = None
    high: Optional[float] = None
    normal_distributed: Optional[bool] = None
    mu: Optional[float] = None
    sigma: Optional[float] = None
    #: Values are multiples of this step, kept within the bounds of `clip`.
    q: Optional[float] = None
    clip: Optional[Tuple[float, float]] = None
    log_distributed: Optional[bool] = None

    def is_activated_in(self, partial_parameters: FormattedParameters) -> bool:
        """Whether the choice that holds the dimension, if there is one, is made in these flat parameters."""
        return not self.is_nested() or partial_parameters.get(self.key[:-2]) == self.key[-2]

    def is_nested(self) -> bool:
        """Whether a choice holds the dimension."""
        return len(self.key) >= 2 and isinstance(self.key[-2], int)


def format_search_space(search_space: SearchSpace) -> FormattedSearchSpace:
    """Every dimension by its key, each choice before the dimensions that it holds."""
    found: FormattedSearchSpace = {}
    _collect(search_space, (), found)
    return found


def deformat_parameters(
    formatted_parameters: FormattedParameters, formatted_search_space: FormattedSearchSpace
) -> Parameters:
    """The parameters that a trial gets."""
    parameters: Parameters = {}
    for key, flat in formatted_parameters.items():
        *above, name = [part for part in key if isinstance(part, str)]
        holder = parameters
        for part in above:
            holder = holder.setdefault(part, {})
        spec = formatted_search_space[key]
        if spec.type == "choice" and _holds_dimensions(spec.values):
            holder.setdefault(name, {})["_name"] = spec.values[flat]["_name"]
        else:
            holder[name] = _value(spec, flat)
    return parameters


def format_parameters(parameters: Parameters, formatted_search_space: FormattedSearchSpace) -> FormattedParameters:
    """The flat form of a trial's parameters; of steps and of a choice with equal values it is one of several."""
    flat: FormattedParameters = {}
    for key, spec in formatted_search_space.items():
        if spec.is_activated_in(flat):
            value: Any = parameters
            for part in key:
                value = value[part] if isinstance(part, str) else value
            flat[key] = _flat(spec, value)
    return flat


def _collect(space: SearchSpace, above: ParameterKey, found: FormattedSearchSpace) -> None:
    for name, dimension in space.items():
        if name == "_name":
            continue
        key = (*above, name)
        kind, values = dimension["_type"], dimension["_value"]
        found[key] = ParameterSpec(name=name, type=kind, values=values, key=key, **_limits(kind, values))
        for index, inner in enumerate(values if kind == "choice" and _holds_dimensions(values) else ()):
            _collect(inner, (*key, index), found)


def _limits(kind: str, values: List[Any]) -> Dict[str, Any]:
    if kind == "choice":
        return {"categorical": True, "size": len(values)}
    first, second = float(values[0]), float(values[1])
    if kind == "randint":
        return {"categorical": True, "size": math.ceil(second) - math.ceil(first)}
    is_log, is_normal = "log" in kind, "normal" in kind
    limits = {"categorical": False, "log_distributed": is_log, "normal_distributed": is_normal}
    limits["q"] = float(values[2]) if kind.startswith("q") else None
    if is_normal:
        return {**limits, "mu": first, "sigma": second}
    limits["clip"] = None if limits["q"] is None else (first, second)
    return {**limits, "low": math.log(first) if is_log else first, "high": math.log(second) if is_log else second}


def _value(spec: ParameterSpec, flat: Any) -> Any:
    if spec.type == "randint":
        return int(_lowest(spec) + flat)
    if spec.categorical:
        return spec.values[flat]
    value = math.exp(flat) if spec.log_distributed else flat
    if spec.q is not None:
        value = round(value / spec.q) * spec.q
    if spec.clip is not None:
        value = min(max(value, spec.clip[0]), spec.clip[1])
    return value.item() if hasattr(value, "item") else value  # a number of numpy


def _flat(spec: ParameterSpec, value: Any) -> Any:
    if spec.type == "randint":
        return value - _lowest(spec)
    if spec.categorical and _holds_dimensions(spec.values):
        return [inner["_name"] for inner in spec.values].index(value["_name"])
    if spec.categorical:
        return spec.values.index(value)
    return math.log(value) if spec.log_distributed else value


def _lowest(spec: ParameterSpec) -> int:
    return math.ceil(float(min(spec.values, key=float)))


def _holds_dimensions(values: List[Any]) -> bool:
    return all(isinstance(value, dict) and "_name" in value for value in values)
