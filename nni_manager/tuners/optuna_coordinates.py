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


def coordinate(place: PlacedDimension, value: object) -> tuple[object, BaseDistribution]:
    """A value as Optuna sees it, with its distribution: the position of an option, else the quantile, 0 to 1."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    dimension = place.dimension
    if isinstance(dimension, Choice):
        return dimension.index(value), CategoricalDistribution(range(dimension.size))
    return dimension.unit(value), FloatDistribution(0.0, 1.0)
