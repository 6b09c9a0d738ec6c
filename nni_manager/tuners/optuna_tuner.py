"""The base of tuners with Optuna: the results so far as its trials, places of a search space as its parameters.

Optuna gets the unit interval for every number and a category for every choice; quantiles and rounding are done here.
Each proposal has its own seed, so that a restarted tuner with the same results in the same order proposes the same
parameters.

Optuna and numpy take 0.4 s to import. This is delayed until there are enough results; the first trials are drawn at
random.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from nni_manager.domain.space.dimension import Choice
from nni_manager.domain.space.search_space import Key, PlacedDimension
from nni_manager.tuners.contract import Pending, Result
from nni_manager.tuners.learning import RememberingTuner, W
from nni_manager.tuners.random import draw

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import InMemoryStorage
    from optuna.trial import FrozenTrial, Trial, TrialState

#: The result of `SearchSpace.picks`.
Picks = dict[Key, object]


class OptunaTuner(RememberingTuner[W]):
    """Trials without a value are ignored."""

    #: Number of results before which parameters are drawn at random.
    startup: int

    def __init__(self, *, seed: int | None) -> None:
        super().__init__(seed=seed)
        #: The results that belong to the current search space.
        self.known: list[tuple[Picks, W]] = []

    @abstractmethod
    def ask(self, parameter_id: int) -> dict[str, object]:
        """Parameters for a new trial, once there are results."""

    @abstractmethod
    def forget(self) -> None:
        """Called when `known` is rebuilt. Clears everything derived from it."""

    def propose(self, parameter_id: int) -> dict[str, object]:
        # results are the basis, whatever `startup` is
        is_early = len(self.known) < max(self.startup, 1)
        parameters = draw(self.space, self.seed, parameter_id) if is_early else self.ask(parameter_id)
        self.pending[parameter_id] = parameters
        return parameters

    def learn(self, result: Result) -> None:
        if result.parameter_id is not None:
            self.pending.pop(result.parameter_id, None)
        if (worth := self.judge(result.value)) is None:
            self.failed += 1
            return
        self.learned.append((result.parameters, worth))
        self.known += self._of_this_space(self.learned[-1:])

    def adopt(self, pending: Pending) -> None:
        if pending.parameter_id is not None:
            self.pending[pending.parameter_id] = pending.parameters

    def state(self) -> dict[str, object]:
        return {"learned": len(self.known), "failed": self.failed, "running": len(self.pending)}

    def sort_out(self) -> None:
        self.known = self._of_this_space(self.foreign + self.learned)
        self.forget()

    def _of_this_space(self, results: Iterable[tuple[object, W]]) -> list[tuple[Picks, W]]:
        all_picks = ((self.space.picks(parameters), worth) for parameters, worth in results)
        return [(picks, worth) for picks, worth in all_picks if picks is not None]

    # For Optuna

    def running(self, lie: W) -> list[tuple[Picks, W]]:
        """The running trials, in the order of their ids, as if they had that result."""
        return self._of_this_space((self.pending[number], lie) for number in sorted(self.pending))

    def seed_of(self, parameter_id: int) -> int:
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{parameter_id}".encode()).digest()[:4], "big")

    def drawn(self, trial: Trial) -> dict[str, object]:
        """The parameters that Optuna suggests for a trial."""

        def choose(place: PlacedDimension) -> object:
            if isinstance(place.dimension, Choice):
                return place.dimension.options[trial.suggest_categorical(name_of(place), range(place.dimension.size))]
            return place.dimension.quantile(trial.suggest_float(name_of(place), 0.0, 1.0))

        return self.space.assemble(choose)

    def frozen(self, picks: Picks, **result: Any) -> FrozenTrial:
        """An ended trial. `result`: as in `optuna.trial.create_trial`."""
        from optuna.trial import create_trial

        units: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        for place in self.space.places:
            if place.key in picks:
                units[name_of(place)], distributions[name_of(place)] = _coordinate(place, picks[place.key])
        return create_trial(params=units, distributions=distributions, **result)


def showing(trials: list[FrozenTrial]) -> InMemoryStorage:
    """A storage that contains only `trials`."""
    from optuna.storages import InMemoryStorage

    class Shown(InMemoryStorage):
        def get_all_trials(
            self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
        ) -> list[FrozenTrial]:
            return [trial for trial in trials if states is None or trial.state in states]

    return Shown()


def name_of(place: PlacedDimension) -> str:
    """The name of Optuna's parameter for a place."""
    return "/".join(map(str, place.key))


def distribution_of(place: PlacedDimension) -> BaseDistribution:
    """The position of an option, or the quantile, 0 to 1."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if isinstance(place.dimension, Choice):
        return CategoricalDistribution(range(place.dimension.size))
    return FloatDistribution(0.0, 1.0)


def _coordinate(place: PlacedDimension, value: object) -> tuple[object, BaseDistribution]:
    """A value as Optuna sees it, with its distribution."""
    dimension = place.dimension
    seen = dimension.index(value) if isinstance(dimension, Choice) else dimension.unit(value)
    return seen, distribution_of(place)
