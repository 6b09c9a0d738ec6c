"""What tuners for several objectives share, on Optuna: the results so far as trials of one study.

Optuna gets the unit interval for every number and a category for every choice; quantiles and rounding are done here.
Each proposal uses a sampler with a seed of its own, so that a restarted tuner that has learned the same results in the
same order proposes the same parameters. A trial whose result lacks an objective, or holds one that is no finite number,
has no rank among the others: it teaches nothing.

Optuna takes 0.4 s to import. This is put off until there are enough results; the trials before are drawn at random.
"""

from __future__ import annotations

import hashlib
import warnings
from abc import abstractmethod
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from nni_manager.domain.objectives import Goals, Worth
from nni_manager.domain.space.dimension import Choice
from nni_manager.domain.space.search_space import Key, PlacedDimension, SearchSpace, parse
from nni_manager.tuners.contract import Data, Pending, Result, Tuner
from nni_manager.tuners.optuna_coordinates import coordinate, name_of
from nni_manager.tuners.random import chosen_seed, draw

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState

#: What `SearchSpace.picks` answers.
Picks = dict[Key, object]


class ObjectivesTuner(Tuner):
    """`seed`: any whole number; without one, every process draws differently."""

    #: Number of results before which parameters are drawn at random.
    startup: int

    def __init__(self, *, seed: int | None) -> None:
        self._seed = chosen_seed(seed)
        self._goals = Goals(objectives={})
        self.space = SearchSpace(places=())
        #: Parameters and what they are worth, in the order they came in; imported ones stand before the others.
        self._imported: list[tuple[object, Worth]] = []
        self._learned: list[tuple[object, Worth]] = []
        #: Those of them that belong to the current search space.
        self.known: list[tuple[Picks, Worth]] = []
        #: The same as Optuna's trials, and what is shown to its sampler; made on demand.
        self._trials: list[FrozenTrial] = []
        self._shown: list[FrozenTrial] = []
        self._study: Study | None = None
        self._pending: dict[int, object] = {}
        self._failed = 0

    @abstractmethod
    def make_sampler(self, seed: int) -> BaseSampler:
        """The sampler of one proposal; told of constraints by `constraints_of`."""

    def attributes(self, number: int) -> dict[str, Any]:
        """Optuna's attributes of the result with that number, 0-based in the order of arrival."""
        return {}

    def lie(self) -> Worth | None:
        """What running trials are supposed to be worth; None: they are not shown."""
        return None

    def pursue(self, goals: Goals) -> None:
        self._goals = goals

    def update_search_space(self, search_space: object) -> None:
        self.space = parse(search_space)
        self._sort_out()

    def propose(self, parameter_id: int) -> dict[str, object]:
        if len(self.known) < max(self.startup, 1):
            parameters = draw(self.space, self._seed, parameter_id)
        else:
            parameters = self._ask(parameter_id)
        self._pending[parameter_id] = parameters
        return parameters

    def learn(self, result: Result) -> None:
        if result.parameter_id is not None:
            self._pending.pop(result.parameter_id, None)
        if (worth := self._goals.judge(result.value)) is None:
            self._failed += 1
            return
        self._learned.append((result.parameters, worth))
        self.known += self._of_this_space(self._learned[-1:])

    def adopt(self, pending: Pending) -> None:
        if pending.parameter_id is not None:
            self._pending[pending.parameter_id] = pending.parameters

    def import_data(self, data: Data) -> None:
        for entry in data:
            if (worth := self._goals.judge(entry.get("value"))) is not None:
                self._imported.append((entry.get("parameter"), worth))
        self._sort_out()

    def state(self) -> dict[str, object]:
        return {"learned": len(self.known), "failed": self._failed, "running": len(self._pending)}

    def _sort_out(self) -> None:
        self.known = self._of_this_space(self._imported + self._learned)
        self._trials, self._study = [], None

    def _of_this_space(self, results: Iterable[tuple[object, Worth]]) -> list[tuple[Picks, Worth]]:
        all_picks = ((self.space.picks(parameters), worth) for parameters, worth in results)
        return [(picks, worth) for picks, worth in all_picks if picks is not None]

    def _ask(self, parameter_id: int) -> dict[str, object]:
        import numpy

        def choose(place: PlacedDimension) -> object:
            if isinstance(place.dimension, Choice):
                return place.dimension.options[trial.suggest_categorical(name_of(place), range(place.dimension.size))]
            return place.dimension.quantile(trial.suggest_float(name_of(place), 0.0, 1.0))

        study = self._current_study()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna deprecates `constraints_func`, which older releases need
            study.sampler = self.make_sampler(self._seed_of(parameter_id))
        # the logarithm of a `prior_weight` of 0, volumes of results near the greatest number
        with numpy.errstate(divide="ignore", over="ignore", invalid="ignore"):
            trial = study.ask()
            return self.space.assemble(choose)

    def _seed_of(self, parameter_id: int) -> int:
        return int.from_bytes(hashlib.sha256(f"{self._seed}/{parameter_id}".encode()).digest()[:4], "big")

    def _current_study(self) -> Study:
        """The study, with all results and, where there is a lie, the running trials."""
        for picks, worth in self.known[len(self._trials) :]:
            self._trials.append(self._frozen(picks, worth, self.attributes(len(self._trials))))
        lie = self.lie()
        running = [(self._pending[number], lie) for number in sorted(self._pending)] if lie is not None else []
        shown = [*self._trials, *(self._frozen(picks, worth, {}) for picks, worth in self._of_this_space(running))]
        for number, trial in enumerate(shown):
            trial.number = trial._trial_id = number
        self._shown[:] = shown
        if self._study is None:
            self._study = _study(self._shown, len(self._goals.objectives))
        return self._study

    def _frozen(self, picks: Picks, worth: Worth, attributes: dict[str, Any]) -> FrozenTrial:
        from optuna.trial import create_trial

        units: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        for place in self.space.places:
            if place.key in picks:
                units[name_of(place)], distributions[name_of(place)] = coordinate(place, picks[place.key])
        attributes = {**attributes, "constraints": list(worth.violations)}
        return create_trial(params=units, distributions=distributions, values=worth.losses, system_attrs=attributes)


def constraints_of(trial: FrozenTrial) -> list[float]:
    """The violations of a trial that `ObjectivesTuner` made, for Optuna's `constraints_func`."""
    return list(trial.system_attrs["constraints"])


def _study(trials: list[FrozenTrial], objectives: int) -> Study:
    """A study that shows what is in `trials`, whatever else is asked of it."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    class Shown(optuna.storages.InMemoryStorage):
        def get_all_trials(
            self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
        ) -> list[FrozenTrial]:
            return [trial for trial in trials if states is None or trial.state in states]

    return optuna.create_study(storage=Shown(), directions=["minimize"] * objectives)
