"""A tuner that proposes each point of a finite search space once, wrapping one that may repeat points.

If the inner tuner proposes a point that has a trial, others are drawn, at first near it and then from the whole search
space. If all of these have trials, too, the next one without a trial is taken from the grid. The inner tuner learns
which point became its proposal. When no point is left, proposals end.

A search space of one point is repeated, as its user measures noise. Infinite search spaces are passed to the inner
tuner.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from nni_manager.domain.objectives import Goals
from nni_manager.domain.space.grid import FiniteGrid, finite_grid
from nni_manager.domain.space.parameters import text_of
from nni_manager.domain.space.search_space import Key, PlacedDimension, SearchSpace, parse
from nni_manager.domain.space.tried import Tried
from nni_manager.tuners.contract import Data, NoMoreProposals, Pending, Result, Tuner

#: Number of draws to replace a repeated point before one is taken from the grid.
_DRAWS = 50


class Distinct(Tuner):
    """`inner`: a tuner of this package, informed by `withdraw` and `adopt` if its point was replaced."""

    def __init__(self, inner: Tuner) -> None:
        self.inner = inner
        self.proposes_ahead = inner.proposes_ahead
        self._tried = Tried()
        #: None: the search space is infinite.
        self._grid: FiniteGrid | None = None
        self._points = 0
        self._untried: Iterator[dict[str, object]] = iter(())

    def pursue(self, goals: Goals) -> None:
        self.inner.pursue(goals)

    def expect(self, *, trials: int | None, concurrency: int) -> None:
        self.inner.expect(trials=trials, concurrency=concurrency)

    def update_search_space(self, search_space: object) -> None:
        self.inner.update_search_space(search_space)
        self._grid = finite_grid(parse(search_space))
        if self._grid is not None:
            self._points = self._grid.count()
            self._tried.change_space(self._grid.rank)
            self._untried = self._tried.untried(self._grid)

    def propose(self, parameter_id: int) -> object:
        if self._grid is None:
            return self.inner.propose(parameter_id)
        if self._points > 1 and self._tried.count >= self._points:
            raise NoMoreProposals(permanently=True)
        parameters = self.inner.propose(parameter_id)
        if self._points > 1 and self._grid.rank(parameters) in self._tried:
            parameters = self._other(self._grid, parameters, parameter_id)
            self.inner.withdraw([parameter_id])
            self.inner.adopt(Pending(parameter_id=parameter_id, parameters=parameters, trial_id=""))
        self._tried.add(parameters, parameter_id)
        return parameters

    def learn(self, result: Result) -> None:
        self.inner.learn(result)
        if self._grid is not None:
            self._tried.end(result.parameters, result.parameter_id)

    def adopt(self, pending: Pending) -> None:
        self.inner.adopt(pending)
        if self._grid is not None:
            self._tried.add(pending.parameters, pending.parameter_id)

    def import_data(self, data: Data) -> None:
        self.inner.import_data(data)
        if self._grid is not None:
            self._tried.add_results(data)

    @property
    def withdraws(self) -> bool:
        return self._grid is not None

    def withdraw(self, parameter_ids: Sequence[int]) -> None:
        self.inner.withdraw(parameter_ids)
        if self._grid is not None:
            self._tried.withdraw(parameter_ids)
            self._untried = self._tried.untried(self._grid)

    def continues(self, parameter_id: int) -> int | None:
        return self.inner.continues(parameter_id)

    def load_checkpoint(self) -> None:
        self.inner.load_checkpoint()

    def close(self) -> None:
        self.inner.close()

    def state(self) -> dict[str, object]:
        return self.inner.state()

    def _other(self, grid: FiniteGrid, repeated: object, parameter_id: int) -> object:
        """A point without a trial, which must exist; the more draws, the farther from the repeated point."""
        picks = grid.space.picks(repeated) or {}
        source = random.Random(f"{parameter_id}/{text_of(repeated)}")  # noqa: S311 - no secret
        for attempt in range(1, _DRAWS + 1):
            kept = {key: value for key, value in picks.items() if source.random() > attempt / _DRAWS}
            drawn = _drawn(grid.space, kept, source)
            if grid.rank(drawn) not in self._tried:
                return drawn
        return next(self._untried)


def _drawn(space: SearchSpace, kept: Mapping[Key, object], source: random.Random) -> dict[str, object]:
    """A point with the values in `kept`; the others are drawn."""

    def choose(place: PlacedDimension) -> object:
        return kept[place.key] if place.key in kept else place.dimension.quantile(source.random())

    return space.assemble(choose)
