"""Random: every proposal is drawn from the search space; results change nothing.

A proposal depends only on seed and parameter id, so that a restarted tuner continues the same sequence.
"""

from __future__ import annotations

import random
from typing import Annotated

from annotated_types import Ge

from nni_manager.domain.objectives import Goals
from nni_manager.domain.space.search_space import SearchSpace, parse
from nni_manager.tuners.contract import Data, Result, Tuner


class Random(Tuner):
    """`seed`: any whole number; default: a different one for every process."""

    proposes_ahead = True

    def __init__(self, *, seed: Annotated[int, Ge(0)] | None = None) -> None:
        self._seed = chosen_seed(seed)
        self._space = SearchSpace(places=())
        self._proposed = 0

    def pursue(self, goals: Goals) -> None:
        """Does nothing: results change nothing."""

    def update_search_space(self, search_space: object) -> None:
        self._space = parse(search_space)

    def propose(self, parameter_id: int) -> dict[str, object]:
        self._proposed += 1
        return draw(self._space, self._seed, parameter_id)

    def learn(self, result: Result) -> None:
        """Does nothing: results change nothing."""

    def import_data(self, data: Data) -> None:
        """Does nothing: results change nothing."""

    def state(self) -> dict[str, object]:
        return {"proposed": self._proposed}


def draw(space: SearchSpace, seed: int, parameter_id: int | str) -> dict[str, object]:
    """Parameters that depend only on the arguments, on every machine."""
    source = random.Random(f"{seed}/{parameter_id}")  # noqa: S311 - no secret
    return space.assemble(lambda place: place.dimension.quantile(source.random()))


def chosen_seed(seed: int | None) -> int:
    """The seed, or a random one for None."""
    return random.SystemRandom().getrandbits(64) if seed is None else seed
