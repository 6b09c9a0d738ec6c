"""TPE, by Optuna.

Each proposal uses a new study with the results so far, in the order of arrival, and the running trials with a made-up
value (the constant liar), so that the next proposal keeps away from them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt

from nni_manager.domain.metrics import OptimizeModeName, default_number
from nni_manager.domain.space.search_space import SearchSpace
from nni_manager.tuners.optuna_tuner import OptunaTuner, distribution_of, name_of, showing

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import TPESampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_LIAR = "constant_liar_type"
#: The assumed result of running trials, computed from the known ones.
LIARS: dict[str, Callable[[list[float]], float]] = {
    "best": min,
    "worst": max,
    "mean": lambda losses: math.fsum(losses) / len(losses),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TpeArguments:
    """The arguments of TPE, NNI's ``tpe_args``. None: Optuna's own rule."""

    #: ``best``, ``worst``, ``mean``: assumed result of running trials; None: they are left out. NNI's default is
    #: ``best``, which draws concurrent trials together instead of apart.
    constant_liar_type: Literal["best", "worst", "mean"] | None = "worst"
    #: Random trials before results count. NNI's default is 20; ten fewer make 60 trials better.
    n_startup_jobs: Annotated[int, Ge(0)] = 10
    #: Number of candidates per proposal.
    n_ei_candidates: Annotated[int, Ge(1)] = 24
    #: Number of newest trials with full weight.
    linear_forgetting: Annotated[int, Ge(1)] | None = None
    #: Weight of the search space itself relative to one result.
    prior_weight: Annotated[float, Ge(0)] | None = None
    #: ``gamma * sqrt(n)`` of n results count as good, at most 25 or `linear_forgetting`.
    gamma: Annotated[float, Gt(0)] | None = None

    @staticmethod
    def parse(given: Mapping[str, Any]) -> TpeArguments:
        """The arguments in a config; null is only valid for `constant_liar_type`."""
        return TpeArguments(**{name: value for name, value in given.items() if value is not None or name == _LIAR})


class TPE(OptunaTuner[float]):
    """`seed`: any whole number. Results that are not finite numbers count as failed, and are ignored."""

    def __init__(
        self,
        *,
        optimize_mode: OptimizeModeName = "minimize",
        seed: Annotated[int, Ge(0)] | None = None,
        tpe_args: TpeArguments | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(seed=seed)
        self._sign = -1.0 if optimize_mode == "maximize" else 1.0
        self._arguments = tpe_args if isinstance(tpe_args, TpeArguments) else TpeArguments.parse(tpe_args or {})
        self.startup = self._arguments.n_startup_jobs
        #: The known results as trials of Optuna, created on demand.
        self._trials: list[FrozenTrial] = []

    def judge(self, value: object) -> float | None:
        number = default_number(value)
        return self._sign * number if number is not None and math.isfinite(number) else None

    def forget(self) -> None:
        self._trials = []

    def ask(self, parameter_id: int) -> dict[str, object]:
        import numpy

        with numpy.errstate(divide="ignore"):  # the logarithm of a `prior_weight` of 0
            return self.drawn(self._study(parameter_id).ask())

    def _study(self, parameter_id: int) -> Study:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna deprecates options that NNI offers
            options = sampler_options(self._arguments, self.space)
            ours = _sampler(self.seed_of(parameter_id), self.space, **options)
        return optuna.create_study(storage=showing(self._shown_trials()), sampler=ours)

    def _shown_trials(self) -> list[FrozenTrial]:
        for picks, loss in self.known[len(self._trials) :]:
            self._trials.append(self.frozen(picks, value=loss))
        shown = [*self._trials, *self._lies()]
        for number, trial in enumerate(shown):
            trial.number = number
        return shown

    def _lies(self) -> list[FrozenTrial]:
        if self._arguments.constant_liar_type is None:
            return []
        lie = LIARS[self._arguments.constant_liar_type]([loss for _, loss in self.known])
        return [self.frozen(picks, value=loss) for picks, loss in self.running(lie)]


def sampler_options(given: TpeArguments, space: SearchSpace) -> dict[str, Any]:
    """The arguments of Optuna's `TPESampler`, but for its seed."""
    options: dict[str, Any] = {
        "n_startup_trials": 0,
        "n_ei_candidates": given.n_ei_candidates,
        "constant_liar": False,
        # correlations are only visible between dimensions that every trial has
        "multivariate": not any(place.branches for place in space.places),
    }
    if given.prior_weight is not None:
        options["prior_weight"] = given.prior_weight
    if given.gamma is not None:
        options["gamma"] = _good_trials(given.gamma, given.linear_forgetting or 25)
    if given.linear_forgetting is not None:
        options["weights"] = _weights(given.linear_forgetting)
    return options


def _good_trials(gamma: float, at_most: int) -> Callable[[int], int]:
    return lambda count: min(math.ceil(gamma * math.sqrt(count)), at_most)


def _weights(in_full: int) -> Callable[[int], Any]:
    import numpy

    def weights(count: int) -> Any:
        fading = max(count - in_full, 0)
        ramp = numpy.linspace(1.0 / max(count, 1), 1.0, num=fading)
        return numpy.concatenate([ramp, numpy.ones(count - fading)])

    return weights


def _sampler(seed: int, space: SearchSpace, **options: Any) -> TPESampler:
    """Optuna's TPE sampler, for a known search space. `options`: its own; with `multivariate`, every trial has all
    dimensions of the space.

    For each study, Optuna infers the dimensions that are drawn together from all its trials, which takes most of the
    time of a proposal with 1,000 results. Here all results belong to one search space, which gives the same.
    """
    from optuna.samplers import TPESampler

    together = _together(space) if options["multivariate"] else {}

    class Informed(TPESampler):
        def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
            return together

    return Informed(seed=seed, **options)


def _together(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Dimensions in Optuna's order, which decides what is drawn first; without choices of a single option."""
    all_of_them = {name_of(place): distribution_of(place) for place in space.places}
    return {name: all_of_them[name] for name in sorted(all_of_them) if not all_of_them[name].single()}
