"""Search spaces: NNI's JSON, parsed to typed dimensions.

A nested choice becomes a choice between branches, plus dimensions that exist only in a branch. `SearchSpace` holds a
flat list of them, and assembles their values to the parameters of a trial.

Only our own tuners use this: the search space of a user's tuner may be any JSON. Everything here raises BadDimension
with the name of the dimension, or InvalidInput.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nni_manager.domain.errors import BadDimension, InvalidInput
from nni_manager.domain.space.dimension import Choice, Dimension, Integer, Real

#: Names from the root down; the index of a branch stands between a nested choice and what is in the branch.
Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedDimension:
    """A dimension and its place in the parameters."""

    key: Key
    dimension: Dimension
    #: Of a nested choice the names of its branches; its value here is the index of one.
    branches: tuple[str, ...] = ()

    @property
    def parent(self) -> Key:
        """The condition: empty, or a nested choice's key with the index of the branch this exists in."""
        return self.key[:-1]

    @property
    def name(self) -> str:
        return str(self.key[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """All dimensions; a nested choice comes before the dimensions of its branches."""

    places: tuple[PlacedDimension, ...]

    def assemble(self, choose: Callable[[PlacedDimension], object]) -> dict[str, object]:
        """The parameters of a trial. `choose` is called once for each place that exists in them."""
        groups: dict[Key, dict[str, object]] = {(): {}}
        for place in self.places:
            if place.parent not in groups:
                continue
            value = choose(place)
            if place.branches:
                assert isinstance(value, int)
                branch: dict[str, object] = {"_name": place.branches[value]}
                groups[*place.key, value] = branch
                value = branch
            groups[place.parent][place.name] = value
        return groups[()]

    def values(self, parameters: object) -> dict[Key, object]:
        """The value at each place, including values outside the space; for a nested choice, the branch."""
        return self._read(parameters)[0]

    def picks(self, parameters: object) -> dict[Key, object] | None:
        """The choices with which `choose` creates `parameters`; None if they are not in this space."""
        picks, groups = self._read(parameters)
        expected = [place for place in self.places if place.parent in groups]
        if not all(place.key in picks and place.dimension.contains(picks[place.key]) for place in expected):
            return None
        entries = sum(len(group) if isinstance(group, Mapping) else 0 for group in groups.values())
        # nothing else may stand there, but for the `_name` of each branch
        return picks if isinstance(parameters, Mapping) and entries == len(picks) + len(groups) - 1 else None

    def _read(self, parameters: object) -> tuple[dict[Key, object], dict[Key, object]]:
        """(place → value, group → its content) of existing places."""
        values: dict[Key, object] = {}
        groups: dict[Key, object] = {(): parameters}
        for place in self.places:
            group = groups.get(place.parent)
            if not isinstance(group, Mapping) or place.name not in group:
                continue
            value = group[place.name]
            if place.branches:
                name = value.get("_name") if isinstance(value, Mapping) else None
                if name not in place.branches:
                    continue
                branch = place.branches.index(name)
                groups[*place.key, branch] = value
                value = branch
            values[place.key] = value
        return values, groups

    def contains(self, parameters: object) -> bool:
        return self.picks(parameters) is not None


def parse(search_space: object) -> SearchSpace:
    """NNI's search-space JSON as dimensions. Raises BadDimension for the first invalid one, InvalidInput."""
    return SearchSpace(places=tuple(_places(search_space, "searchSpace", ())))


def _places(group: object, where: str, parent: Key) -> list[PlacedDimension]:
    if not isinstance(group, Mapping):
        raise InvalidInput(f'{where} is not an object; write {{"name": {{"_type": …, "_value": …}}}}.')
    return [place for name, spec in group.items() for place in _named(name, spec, f"{where}.{name}", parent)]


def _named(name: str, spec: object, where: str, parent: Key) -> list[PlacedDimension]:
    """The dimensions of a parameter, like `_place`; errors name the parameter once."""
    try:
        return _place(name, spec, where, parent)
    except BadDimension:
        raise
    except InvalidInput as error:
        reason = str(error).removeprefix(where).lstrip(": ")
        raise BadDimension(str(error), key=(*parent, name), reason=reason) from None


def _place(name: str, spec: object, where: str, parent: Key) -> list[PlacedDimension]:
    if not isinstance(spec, Mapping) or "_type" not in spec or "_value" not in spec:
        raise InvalidInput(f'{where} is not a dimension; write {{"_type": …, "_value": …}}.')
    kind, value = spec["_type"], spec["_value"]
    if kind in ("layer_choice", "input_choice"):
        raise InvalidInput(f"{where}: {kind} belongs to neural architecture search, which is not supported.")
    if kind == "choice":
        return _choice(value, where, (*parent, name))
    if not isinstance(kind, str) or kind not in _NUMBERS:
        raise InvalidInput(f"{where}: the _type {kind!r} is unknown; use one of choice, {', '.join(_NUMBERS)}.")
    return [PlacedDimension(key=(*parent, name), dimension=_numeric(kind, value, where))]


def _choice(value: object, where: str, key: Key) -> list[PlacedDimension]:
    if not isinstance(value, list | tuple) or not value:
        raise InvalidInput(f"{where}: the _value of choice must be a list of at least one element.")
    branches = [element for element in value if isinstance(element, Mapping) and "_name" in element]
    if len(branches) < len(value):
        return [PlacedDimension(key=key, dimension=Choice(options=tuple(value)))]
    names = tuple(str(branch["_name"]) for branch in branches)
    if len(set(names)) < len(names):
        raise InvalidInput(f"{where}: two branches have the same _name; give each its own.")
    places = [PlacedDimension(key=key, dimension=Choice(options=tuple(range(len(names)))), branches=names)]
    for index, branch in enumerate(branches):
        inner = {name: spec for name, spec in branch.items() if name != "_name"}
        places += _places(inner, f"{where}.{names[index]}", (*key, index))
    return places


#: What the numbers in `_value` mean, for each `_type`.
_NUMBERS = {
    "randint": ("low", "high"),
    "uniform": ("low", "high"),
    "quniform": ("low", "high", "q"),
    "loguniform": ("low", "high"),
    "qloguniform": ("low", "high", "q"),
    "normal": ("mu", "sigma"),
    "qnormal": ("mu", "sigma", "q"),
    "lognormal": ("mu", "sigma"),
    "qlognormal": ("mu", "sigma", "q"),
}


def _numeric(kind: str, value: object, where: str) -> Integer | Real:
    names = _NUMBERS[kind]
    if not isinstance(value, list | tuple) or len(value) != len(names):
        raise InvalidInput(f"{where}: the _value of {kind} must be [{', '.join(names)}].")
    first, second, *rest = [
        _number(number, f"{where}: {name} of {kind}") for name, number in zip(names, value, strict=True)
    ]
    _check_width(kind, first, second, where)
    if kind == "randint":
        return _integer(first, second, where)
    normal, log = kind.endswith("normal"), "log" in kind
    if normal and second <= 0:
        raise InvalidInput(f"{where}: sigma must be greater than 0, but it is {second:g}.")
    if not normal and first > second:
        raise InvalidInput(f"{where}: low {first:g} is greater than high {second:g}; exchange them.")
    if log and not normal and first <= 0:
        raise InvalidInput(f"{where}: low of {kind} must be greater than 0 (not an exponent), but it is {first:g}.")
    if rest and rest[0] <= 0:
        raise InvalidInput(f"{where}: q must be greater than 0, but it is {rest[0]:g}.")
    return Real(first=first, second=second, normal=normal, log=log, step=rest[0] if rest else None)


def _check_width(kind: str, first: float, second: float, where: str) -> None:
    """Refuse a range that is too wide for quantiles: the difference of its ends is infinite."""
    # 9 sigma: the range of possible samples
    name, reach = (
        ("mu + 9 sigma", abs(first) + 9 * second) if kind.endswith("normal") else ("high - low", second - first)
    )
    if math.isinf(reach):
        raise InvalidInput(f"{where}: {name} of {kind} exceeds 1.8e308, the largest number; use smaller ones.")


def _integer(low: float, high: float, where: str) -> Integer:
    low, high = math.ceil(low), math.ceil(high)
    if low >= high:
        raise InvalidInput(f"{where}: randint draws low <= x < high, so nothing is between {low} and {high}.")
    return Integer(low=low, high=high)


def _number(value: object, what: str) -> float:
    if isinstance(value, str):
        raise InvalidInput(f"{what} is the text {value!r}, not a number; write it without quotes.")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInput(f"{what} must be a finite number, but it is {value!r}.")
    return float(value)
