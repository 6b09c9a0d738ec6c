"""TPE for several objectives, by Optuna (Ozaki et al. 2020, *Multiobjective tree-structured Parzen estimator*).

The results that count as good are the first fronts of non-dominated sorting, the last of them thinned out by
hypervolume. With constraints, feasible results come before the others, which are sorted by the sum of their violations.
Running trials have a made-up result (the constant liar) for each objective.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from nni_manager.domain.objectives import Worth
from nni_manager.tuners.optuna_objectives import ObjectivesTuner, constraints_of
from nni_manager.tuners.optuna_tpe import LIARS, TpeArguments, sampler_options

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


class ObjectivesTPE(ObjectivesTuner):
    """Takes the arguments of `optuna_tpe.TPE`, except `optimize_mode`, as objectives have directions."""

    def __init__(
        self,
        *,
        seed: Annotated[int, Ge(0)] | None = None,
        tpe_args: TpeArguments | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(seed=seed)
        self._arguments = tpe_args if isinstance(tpe_args, TpeArguments) else TpeArguments.parse(tpe_args or {})
        self.startup = self._arguments.n_startup_jobs

    def make_sampler(self, seed: int) -> BaseSampler:
        from optuna.samplers import TPESampler

        options = sampler_options(self._arguments, self.space)
        return TPESampler(seed=seed, constraints_func=constraints_of, **options)

    def lie(self) -> Worth | None:
        if self._arguments.constant_liar_type is None:
            return None
        chosen = LIARS[self._arguments.constant_liar_type]
        losses = zip(*(worth.losses for _, worth in self.known), strict=True)
        violations = zip(*(worth.violations for _, worth in self.known), strict=True)
        return Worth(
            losses=tuple(chosen(list(column)) for column in losses),
            violations=tuple(chosen(list(column)) for column in violations),
        )
