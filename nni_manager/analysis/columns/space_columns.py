"""The search space as columns: the possible values of parameters, by flattened name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.space.dimension import Choice, Dimension, Integer
from nni_manager.domain.space.search_space import PlacedDimension, parse


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceColumn:
    """A dimension of the search space, or of the same name in several branches."""

    #: ``_type`` of the search space.
    type: str
    log: bool = False
    #: Bounds, both included; None: none.
    low: float | None = None
    high: float | None = None
    #: None: a number.
    choices: tuple[Any, ...] | None = None


def of(space: object) -> Mapping[str, SpaceColumn]:
    """Flattened name → column; empty for a search space of unknown format, as of a user's tuner."""
    try:
        places = parse(space).places
    except (InvalidInput, RecursionError):
        return {}
    found: dict[str, SpaceColumn] = {}
    for place in places:
        name = ".".join(step for step in place.key if isinstance(step, str))
        column = _column(place)
        found[name] = _joined(found[name], column) if name in found else column
    return found


def _column(place: PlacedDimension) -> SpaceColumn:
    dimension = place.dimension
    if isinstance(dimension, Choice):
        return SpaceColumn(type="choice", choices=place.branches or dimension.options)
    if isinstance(dimension, Integer):
        return SpaceColumn(type="randint", low=dimension.low, high=dimension.high - 1)
    if dimension.normal:
        return SpaceColumn(type=_type(dimension), log=dimension.log)
    return SpaceColumn(type=_type(dimension), log=dimension.log, low=dimension.first, high=dimension.second)


def _type(dimension: Dimension) -> str:
    assert not isinstance(dimension, Choice | Integer)
    step, log = "q" if dimension.step is not None else "", "log" if dimension.log else ""
    return f"{step}{log}{'normal' if dimension.normal else 'uniform'}"


def _joined(one: SpaceColumn, other: SpaceColumn) -> SpaceColumn:
    """The column of a name in two branches."""
    if one.choices is not None and other.choices is not None:
        return replace(one, choices=tuple(_distinct((*one.choices, *other.choices))))
    if one.choices is not None or other.choices is not None:
        return one
    low = None if one.low is None or other.low is None else min(one.low, other.low)
    high = None if one.high is None or other.high is None else max(one.high, other.high)
    return replace(one, low=low, high=high, log=one.log and other.log)


def _distinct(options: tuple[Any, ...]) -> Iterator[Any]:
    seen: list[Any] = []
    for option in options:
        if not any(option == other and type(option) is type(other) for other in seen):
            seen.append(option)
            yield option
