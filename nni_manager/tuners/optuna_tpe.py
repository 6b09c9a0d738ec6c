"""TPE, by Optuna.

Optuna gets the unit interval for every number and a category for every choice; quantiles and rounding are done here.
Each proposal uses a new study with the results so far, in the order of arrival, and the running trials with a made-up
value (the constant liar), so that the next proposal keeps away from them. A restarted tuner that has learned the same
results proposes the same parameters.

Optuna and numpy take 0.4 s to import. This is put off until there are enough results to need them; the trials before
are drawn at random.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt

from nni_manager.domain.metrics import OptimizeModeName, default_number
from nni_manager.domain.space.dimension import Choice
from nni_manager.domain.space.search_space import Key, PlacedDimension, SearchSpace, parse
from nni_manager.tuners.contract import Data, Pending, Result, Tuner
from nni_manager.tuners.optuna_coordinates import coordinate, name_of
from nni_manager.tuners.optuna_sampler import sampler
from nni_manager.tuners.random import chosen_seed, draw

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState

#: What `SearchSpace.picks` answers.
Picks = dict[Key, object]

_LIAR = "constant_liar_type"
_LIARS: dict[str, Callable[[list[float]], float]] = {
    "best": min,
    "worst": max,
    "mean": lambda losses: math.fsum(losses) / len(losses),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TpeArguments:
    """The arguments of TPE, NNI's ``tpe_args``. None: Optuna's own rule."""

    #: ``best``, ``worst``, ``mean``: which result running trials are supposed to have; None: they are left out. NNI's
    #: default is ``best``, which draws trials that run side by side together instead of apart.
    constant_liar_type: Literal["best", "worst", "mean"] | None = "worst"
    #: Trials drawn at random before results count. NNI's default is 20; ten fewer make 60 trials better.
    n_startup_jobs: Annotated[int, Ge(0)] = 10
    #: Candidates drawn for one proposal.
    n_ei_candidates: Annotated[int, Ge(1)] = 24
    #: How many of the newest trials count in full.
    linear_forgetting: Annotated[int, Ge(1)] | None = None
    #: Weight of the search space itself against one result.
    prior_weight: Annotated[float, Ge(0)] | None = None
    #: ``gamma * sqrt(n)`` of n results count as good, at most 25 or `linear_forgetting`.
    gamma: Annotated[float, Gt(0)] | None = None

    @staticmethod
    def parse(given: Mapping[str, Any]) -> TpeArguments:
        """The arguments that a config gives; null is a value of `constant_liar_type` alone."""
        return TpeArguments(**{name: value for name, value in given.items() if value is not None or name == _LIAR})


class TPE(Tuner):
    """`seed`: any whole number. Results that are no finite number count as failed: they teach nothing."""

    def __init__(
        self,
        *,
        optimize_mode: OptimizeModeName = "minimize",
        seed: Annotated[int, Ge(0)] | None = None,
        tpe_args: TpeArguments | Mapping[str, Any] | None = None,
    ) -> None:
        self._sign = -1.0 if optimize_mode == "maximize" else 1.0
        self._seed = chosen_seed(seed)
        self._arguments = tpe_args if isinstance(tpe_args, TpeArguments) else TpeArguments.parse(tpe_args or {})
        self._space = SearchSpace(places=())
        #: Parameters and loss (smaller is better), in the order they came in; imported ones stand before the others.
        self._imported: list[tuple[object, float]] = []
        self._learned: list[tuple[object, float]] = []
        #: Those of them that belong to the current search space.
        self._known: list[tuple[Picks, float]] = []
        #: The known results as trials of Optuna, made on demand.
        self._trials: list[FrozenTrial] = []
        self._pending: dict[int, object] = {}
        self._failed = 0

    def update_search_space(self, search_space: object) -> None:
        self._space = parse(search_space)
        self._sort_out()

    def propose(self, parameter_id: int) -> dict[str, object]:
        # without a result TPE has no basis, whatever `n_startup_jobs` is
        if len(self._known) < max(self._arguments.n_startup_jobs, 1):
            parameters = draw(self._space, self._seed, parameter_id)
        else:
            parameters = self._ask(parameter_id)
        self._pending[parameter_id] = parameters
        return parameters

    def learn(self, result: Result) -> None:
        if result.parameter_id is not None:
            self._pending.pop(result.parameter_id, None)
        if (number := _finite(result.value)) is None:
            self._failed += 1
            return
        self._learned.append((result.parameters, self._sign * number))
        self._known += self._of_this_space(self._learned[-1:])

    def adopt(self, pending: Pending) -> None:
        if pending.parameter_id is not None:
            self._pending[pending.parameter_id] = pending.parameters

    def import_data(self, data: Data) -> None:
        for entry in data:
            if (number := _finite(entry.get("value"))) is not None:
                self._imported.append((entry.get("parameter"), self._sign * number))
        self._sort_out()

    def state(self) -> dict[str, object]:
        return {"learned": len(self._known), "failed": self._failed, "running": len(self._pending)}

    def _sort_out(self) -> None:
        self._known = self._of_this_space(self._imported + self._learned)
        self._trials = []

    def _of_this_space(self, results: list[tuple[object, float]]) -> list[tuple[Picks, float]]:
        all_picks = ((self._space.picks(parameters), loss) for parameters, loss in results)
        return [(picks, loss) for picks, loss in all_picks if picks is not None]

    def _ask(self, parameter_id: int) -> dict[str, object]:
        import numpy

        def choose(place: PlacedDimension) -> object:
            if isinstance(place.dimension, Choice):
                return place.dimension.options[trial.suggest_categorical(name_of(place), range(place.dimension.size))]
            return place.dimension.quantile(trial.suggest_float(name_of(place), 0.0, 1.0))

        with numpy.errstate(divide="ignore"):  # the logarithm of a `prior_weight` of 0
            trial = self._study(parameter_id).ask()
            return self._space.assemble(choose)

    def _study(self, parameter_id: int) -> Study:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        seed = int.from_bytes(hashlib.sha256(f"{self._seed}/{parameter_id}".encode()).digest()[:4], "big")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna deprecates options that NNI offers
            ours = sampler(seed, self._space, **sampler_options(self._arguments, self._space))
        return optuna.create_study(storage=_shown(self._shown_trials()), sampler=ours)

    def _shown_trials(self) -> list[FrozenTrial]:
        for picks, loss in self._known[len(self._trials) :]:
            self._trials.append(self._frozen(picks, loss))
        return [*self._trials, *self._lies()]

    def _lies(self) -> list[FrozenTrial]:
        if self._arguments.constant_liar_type is None:
            return []
        lie = _LIARS[self._arguments.constant_liar_type]([loss for _, loss in self._known])
        pending = [(self._pending[number], lie) for number in sorted(self._pending)]
        return [self._frozen(picks, lie) for picks, lie in self._of_this_space(pending)]

    def _frozen(self, picks: Picks, loss: float) -> FrozenTrial:
        from optuna.trial import create_trial

        units: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        for place in self._space.places:
            if place.key in picks:
                units[name_of(place)], distributions[name_of(place)] = coordinate(place, picks[place.key])
        return create_trial(params=units, distributions=distributions, value=loss)


def sampler_options(given: TpeArguments, space: SearchSpace) -> dict[str, Any]:
    """The arguments of Optuna's `TPESampler`, but for its seed."""
    options: dict[str, Any] = {
        "n_startup_trials": 0,
        "n_ei_candidates": given.n_ei_candidates,
        "constant_liar": False,
        # correlations are only seen between dimensions that every trial has
        "multivariate": not any(place.branches for place in space.places),
    }
    if given.prior_weight is not None:
        options["prior_weight"] = given.prior_weight
    if given.gamma is not None:
        options["gamma"] = _good_trials(given.gamma, given.linear_forgetting or 25)
    if given.linear_forgetting is not None:
        options["weights"] = _weights(given.linear_forgetting)
    return options


def _finite(value: object) -> float | None:
    number = default_number(value)
    return number if number is not None and math.isfinite(number) else None


def _good_trials(gamma: float, at_most: int) -> Callable[[int], int]:
    return lambda count: min(math.ceil(gamma * math.sqrt(count)), at_most)


def _weights(in_full: int) -> Callable[[int], Any]:
    import numpy

    def weights(count: int) -> Any:
        fading = max(count - in_full, 0)
        ramp = numpy.linspace(1.0 / max(count, 1), 1.0, num=fading)
        return numpy.concatenate([ramp, numpy.ones(count - fading)])

    return weights


def _shown(trials: list[FrozenTrial]) -> Any:
    """A storage that shows exactly these trials, whatever else is asked of it."""
    from optuna.storages import InMemoryStorage

    class Shown(InMemoryStorage):
        def get_all_trials(
            self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
        ) -> list[FrozenTrial]:
            return [trial for trial in trials if states is None or trial.state in states]

    for number, trial in enumerate(trials):
        trial.number = number
    return Shown()
