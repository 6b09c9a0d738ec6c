"""Places of a search space as parameters of Optuna."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nni_manager.domain.space.dimension import Choice
from nni_manager.domain.space.search_space import PlacedDimension

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def name_of(place: PlacedDimension) -> str:
    """The name of Optuna's parameter for a place."""
    return "/".join(map(str, place.key))


def distribution_of(place: PlacedDimension) -> BaseDistribution:
    """The position of an option, or the quantile, 0 to 1."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if isinstance(place.dimension, Choice):
        return CategoricalDistribution(range(place.dimension.size))
    return FloatDistribution(0.0, 1.0)


def coordinate(place: PlacedDimension, value: object) -> tuple[object, BaseDistribution]:
    """A value as Optuna sees it, with its distribution."""
    dimension = place.dimension
    seen = dimension.index(value) if isinstance(dimension, Choice) else dimension.unit(value)
    return seen, distribution_of(place)
