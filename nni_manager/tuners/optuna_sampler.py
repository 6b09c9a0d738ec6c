"""Optuna's TPE sampler, for a search space that is known.

Optuna infers the dimensions that are drawn together from all trials of the study, anew for each study: most of the time
of a proposal with 1,000 results. Here all results are of one search space, which says the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nni_manager.domain.space.search_space import SearchSpace
from nni_manager.tuners.optuna_tuner import distribution_of, name_of

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import TPESampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial


def sampler(seed: int, space: SearchSpace, **options: Any) -> TPESampler:
    """`options`: of Optuna's `TPESampler`. With `multivariate`, every trial has all dimensions of the space."""
    from optuna.samplers import TPESampler

    together = _together(space) if options["multivariate"] else {}

    class Informed(TPESampler):
        def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
            return together

    return Informed(seed=seed, **options)


def _together(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Dimensions come in Optuna's order, which decides what is drawn first; a choice of one option is none there."""
    all_of_them = {name_of(place): distribution_of(place) for place in space.places}
    return {name: all_of_them[name] for name in sorted(all_of_them) if not all_of_them[name].single()}
