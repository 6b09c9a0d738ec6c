"""The base of learning tuners: which results count, in which order, and which trials still run.

Every value is represented by a number in the unit interval, its place in the distribution of its dimension; so
algorithms need not know distributions, steps or bounds. Proposals depend on seed, parameter id, known results and
running trials, so that a restarted tuner with the same data proposes the same.
"""

from __future__ import annotations

import math
import random
from abc import abstractmethod
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from nni_manager.domain.metrics import OptimizeModeName, default_number
from nni_manager.domain.space.search_space import Key, PlacedDimension, SearchSpace, parse
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners.contract import Data, Pending, Result, Tuner
from nni_manager.tuners.random import chosen_seed

#: The place of each value within its dimension, 0 to 1; only of dimensions that exist in these parameters.
Units = dict[Key, float]
#: The assumed result of running trials: the best so far, the worst or the mean.
Liar = Literal["min", "max", "mean"]

#: Statuses without a usable result that say something about the parameters; a cancelled trial says nothing.
_BAD = (TrialStatus.SUCCEEDED, TrialStatus.FAILED, TrialStatus.EARLY_STOPPED)


@dataclass(frozen=True, slots=True, order=True)
class Observation:
    """A result, smaller is better; of equal ones the earlier comes first."""

    loss: float
    #: 0, 1, … in the order of arrival; imported ones first.
    number: int
    units: Units = field(compare=False)


#: The value of a result: a loss, or several.
W = TypeVar("W")


class RememberingTuner(Tuner, Generic[W]):
    """Stores results and running trials, of all search spaces. `seed`: any whole number; default: a different one for
    every process."""

    def __init__(self, *, seed: int | None) -> None:
        self.seed = chosen_seed(seed)
        self.space = SearchSpace(places=())
        #: Parameters and their values, in the order of arrival; imported ones come before the others.
        self.foreign: list[tuple[object, W]] = []
        self.learned: list[tuple[object, W]] = []
        #: The parameters of running trials, by id.
        self.pending: dict[int, object] = {}
        self.failed = 0

    @abstractmethod
    def judge(self, value: object) -> W | None:
        """The value of a result; None: it is not usable."""

    @abstractmethod
    def sort_out(self) -> None:
        """Reads everything again, for another search space or imported results."""

    def update_search_space(self, search_space: object) -> None:
        self.space = parse(search_space)
        self.sort_out()

    def import_data(self, data: Data) -> None:
        for entry in data:
            if (worth := self.judge(entry.get("value"))) is not None:
                self.foreign.append((entry.get("parameter"), worth))
        self.sort_out()

    def withdraw(self, parameter_ids: Sequence[int]) -> None:
        for parameter_id in parameter_ids:
            self.pending.pop(parameter_id, None)


class LearningTuner(RememberingTuner[float]):
    """Base of tuners that learn from results.

    A trial without a finite result is not an observation. `ended` also has failed and early-stopped trials, for
    algorithms that learn from them.
    """

    def __init__(self, *, optimize_mode: OptimizeModeName, seed: int | None) -> None:
        super().__init__(seed=seed)
        self._sign = -1.0 if optimize_mode == "maximize" else 1.0
        #: Observations in the current search space, in the order of arrival.
        self.observed: list[Observation] = []
        #: The same from best to worst.
        self.ranked: list[Observation] = []
        #: The entries of `observed`, and trials of this space that failed, were stopped early, or had no finite result,
        #: with an infinite loss.
        self.ended: list[tuple[Units, float]] = []
        self._running: dict[int, Units] = {}
        #: Number of imported entries, the first ones, of `observed` and of `ended`.
        self.imported = 0

    @abstractmethod
    def suggest(self, parameter_id: int, source: random.Random) -> dict[str, object]:
        """Parameters for a new trial; `source`: the only source of chance. Raises NoMoreProposals."""

    def forget(self) -> None:
        """Called when `observed` is rebuilt. Clears everything computed from it."""

    def judge(self, value: object) -> float | None:
        number = default_number(value)
        return self._sign * number if number is not None and math.isfinite(number) else None

    def propose(self, parameter_id: int) -> dict[str, object]:
        parameters = self.suggest(parameter_id, random.Random(f"{self.seed}/{parameter_id}"))  # noqa: S311 - no secret
        self._add_running(parameter_id, parameters)
        return parameters

    def learn(self, result: Result) -> None:
        if result.parameter_id is not None:
            self.pending.pop(result.parameter_id, None)
            self._running.pop(result.parameter_id, None)
        if (loss := self.judge(result.value)) is not None:
            self._keep(result.parameters, loss)
        else:
            self.failed += 1
            if result.status in _BAD:
                self._keep(result.parameters, math.inf)

    def adopt(self, pending: Pending) -> None:
        if pending.parameter_id is not None:
            self._add_running(pending.parameter_id, pending.parameters)

    def withdraw(self, parameter_ids: Sequence[int]) -> None:
        super().withdraw(parameter_ids)
        for parameter_id in parameter_ids:
            self._running.pop(parameter_id, None)

    def state(self) -> dict[str, object]:
        return {"learned": len(self.observed), "failed": self.failed, "running": len(self._running)}

    # For algorithms

    @property
    def running(self) -> list[Units]:
        """The parameters of running trials, in the order of their ids."""
        return [self._running[number] for number in sorted(self._running)]

    def lie(self, liar: Liar) -> float:
        """The assumed result of running trials, if there is at least one observation."""
        losses = [observation.loss for observation in self.observed]
        if liar == "mean":
            return math.fsum(losses) / len(losses)
        return min(losses) if liar == "min" else max(losses)

    def units(self, parameters: object) -> Units | None:
        """The places of values; None: the parameters do not belong to this space."""
        picks = self.space.picks(parameters)
        if picks is None:
            return None
        return {place.key: place.dimension.unit(picks[place.key]) for place in self.space.places if place.key in picks}

    def parameters(self, units: Units, source: random.Random) -> dict[str, object]:
        """Parameters with these places; dimensions without one are drawn."""
        return self.space.assemble(lambda place: place.dimension.quantile(self._unit(units, place, source)))

    # Bookkeeping

    @staticmethod
    def _unit(units: Units, place: PlacedDimension, source: random.Random) -> float:
        known = units.get(place.key)
        return source.random() if known is None else known

    def _keep(self, parameters: object, loss: float) -> None:
        self.learned.append((parameters, loss))
        self._observe(parameters, loss)

    def _add_running(self, parameter_id: int, parameters: object) -> None:
        self.pending[parameter_id] = parameters
        if (units := self.units(parameters)) is not None:
            self._running[parameter_id] = units

    def sort_out(self) -> None:
        self.observed, self.ranked, self.ended, self._running = [], [], [], {}
        for parameters, loss in self.foreign:
            self._observe(parameters, loss)
        self.imported = len(self.observed)
        for parameters, loss in self.learned:
            self._observe(parameters, loss)
        for parameter_id, pending in self.pending.items():
            self._add_running(parameter_id, pending)
        self.forget()

    def _observe(self, parameters: object, loss: float) -> None:
        if (units := self.units(parameters)) is None:
            return
        self.ended.append((units, loss))
        if loss == math.inf:
            return
        observation = Observation(loss, len(self.observed), units)
        self.observed.append(observation)
        insort(self.ranked, observation)
