"""Checks a user's parameters against the search space before they are sent.

Values outside the search space are allowed with a warning, as in NNI.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nni_manager.config.sections.search_space import check_search_space
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.space.dimension import Choice, Integer
from nni_manager.domain.space.search_space import Key, PlacedDimension, SearchSpace
from nni_manager.programs.plain_values import plain_fields

_WHAT = "parameters"
#: Keys that Hyperband and BOHB add to the parameters of a trial.
_BUDGET = "TRIAL_BUDGET"


def checked(parameters: object, config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """(parameters for a trial of the experiment, warnings). `config`: the experiment's.

    Numbers get the type of their dimension: 1 becomes 1.0 for a uniform one. The search space of Batch or a user's
    tuner may have any form, so only the values are checked. Raises InvalidInput.
    """
    if not isinstance(parameters, Mapping) and callable(getattr(parameters, "to_dict", None)):
        parameters = parameters.to_dict()  # type: ignore[attr-defined]  # a row of a pandas table
    if not isinstance(parameters, Mapping):
        raise InvalidInput(f"{_WHAT}: must be a dict of names and values, not {type(parameters).__name__}")
    values = plain_fields(parameters, _WHAT)
    space = check_search_space(config.get("searchSpace"), _algorithm(config))
    if space is None:
        return values, []
    check = _Check(space)
    return check.group(values, (), _WHAT), check.warnings


def _algorithm(config: Mapping[str, Any]) -> object:
    section = config.get("tuner") or config.get("advisor") or {}
    return section.get("name")


class _Check:
    """Checks one set of parameters."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self.warnings: list[str] = []

    def group(self, values: Mapping[str, Any], key: Key, where: str) -> dict[str, Any]:
        """The values of the whole space, or of the branch at `key`. Raises InvalidInput for wrong names."""
        places = {place.name: place for place in self._space.places if place.parent == key}
        names = ", ".join(places) or "no dimension"
        for name in values:
            if name not in places and name != _BUDGET:
                raise InvalidInput(f"{where}.{name}: unknown dimension; the search space has {names}")
        if missing := [name for name in places if name not in values]:
            verb = "is" if len(missing) == 1 else "are"
            raise InvalidInput(f"{where}: {', '.join(missing)} {verb} missing; the search space has {names}")
        return {name: self._value(places.get(name), value, f"{where}.{name}") for name, value in values.items()}

    def _value(self, place: PlacedDimension | None, value: Any, where: str) -> Any:
        if place is None:
            return value
        if place.branches:
            return self._branch(place, value, where)
        found = _typed(place, value, where)
        if not place.dimension.contains(found):
            self.warnings.append(f"{where}: {found!r} is outside the search space")
        return found

    def _branch(self, place: PlacedDimension, value: Any, where: str) -> dict[str, Any]:
        name = value.get("_name") if isinstance(value, dict) else None
        if name not in place.branches:
            raise InvalidInput(f"{where}: must be a dict whose _name is one of {', '.join(place.branches)}")
        inner = {inner: one for inner, one in value.items() if inner != "_name"}
        return {"_name": name, **self.group(inner, (*place.key, place.branches.index(name)), where)}


def _typed(place: PlacedDimension, value: Any, where: str) -> Any:
    """The value with the type that tuners use. Raises InvalidInput for another kind of value."""
    dimension = place.dimension
    if isinstance(dimension, Choice):
        return dimension.options[dimension.index(value)] if dimension.contains(value) else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{where}: must be a number, not {value!r}")
    if not isinstance(dimension, Integer):
        try:
            return float(value)
        except OverflowError:
            raise InvalidInput(f"{where}: must be a number that fits into a float") from None
    if value != value // 1:
        raise InvalidInput(f"{where}: must be a whole number, not {value!r}")
    return int(value)
