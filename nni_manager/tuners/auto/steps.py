"""Proposals without a model: a step from one of the best results. Their cost does not depend on the number of results.

The best result is chosen most often, the next one half as often, and so on. Few dimensions change, by steps of
different widths from the whole range down to a thousandth (R. G. Regis, C. A. Shoemaker, 2013; the widths as in
evolution strategies without adaptation).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from nni_manager.domain.space.dimension import Choice
from nni_manager.domain.space.search_space import PlacedDimension, SearchSpace
from nni_manager.tuners.learning import Observation, Units

#: Share of proposals that are drawn from the search space.
_ANYWHERE = 0.05
#: Mean rank, from 1, of the result from which a step is made.
_MEAN_RANK = 2.0
#: Powers of ten of the widths of steps, as shares of the range.
_WIDEST, _NARROWEST = -0.5, -3.0


def step(space: SearchSpace, ranked: Sequence[Observation], source: random.Random) -> Units:
    """The places of a proposal; arbitrary in dimensions that the chosen result lacks."""
    if source.random() < _ANYWHERE:
        return {}
    parent = _chosen(ranked, source).units
    share = source.choice([0.0, 0.3, 1.0])
    width = 10.0 ** source.uniform(_NARROWEST, _WIDEST)
    moved = {source.choice(list(parent))} if parent else set()
    moved |= {key for key in parent if source.random() < share}
    return {
        place.key: _moved(place, parent[place.key], width, source) if place.key in moved else parent[place.key]
        for place in space.places
        if place.key in parent
    }


def _chosen(ranked: Sequence[Observation], source: random.Random) -> Observation:
    rank = 0
    while source.random() > 1 / _MEAN_RANK and rank < len(ranked) - 1:
        rank += 1
    return ranked[rank]


def _moved(place: PlacedDimension, unit: float, width: float, source: random.Random) -> float:
    if isinstance(place.dimension, Choice):
        return source.random()
    size = place.dimension.size
    step = source.gauss(0.0, width)
    if size is not None and abs(step) < 1 / size:  # at least to the next value
        step = 1 / size if step > 0 else -1 / size
    return min(max(unit + step, 0.0), 1.0)
