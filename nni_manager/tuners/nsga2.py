"""NSGA-II, by Optuna: a genetic algorithm for several objectives (Deb et al. 2002, *A fast and elitist multiobjective
genetic algorithm*).

Results form generations of `population_size` in the order of arrival, the first one of random parameters. The parents
of a generation are the best of the previous one and its parents: by non-dominated sorting, then by crowding distance,
with constrained domination. A child takes each parameter from one of two parents; some are redrawn. Parameters in a
branch of a nested choice are drawn at random, as not all parents have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Le

from nni_manager.tuners.optuna_objectives import ObjectivesTuner, constraints_of

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

_Share = Annotated[float, Ge(0), Le(1)]


class NSGA2(ObjectivesTuner):
    """`population_size`: results in a generation. `mutation_prob`: None: on average one parameter of a child."""

    def __init__(
        self,
        *,
        seed: Annotated[int, Ge(0)] | None = None,
        population_size: Annotated[int, Ge(2)] = 50,
        mutation_prob: _Share | None = None,
        crossover_prob: _Share = 0.9,
        swapping_prob: _Share = 0.5,
    ) -> None:
        super().__init__(seed=seed)
        self.startup = population_size
        self._options: dict[str, Any] = {
            "population_size": population_size,
            "mutation_prob": mutation_prob,
            "crossover_prob": crossover_prob,
            "swapping_prob": swapping_prob,
        }

    def make_sampler(self, seed: int) -> BaseSampler:
        from optuna.samplers import NSGAIISampler

        return NSGAIISampler(seed=seed, constraints_func=constraints_of, **self._options)

    def attributes(self, number: int) -> dict[str, Any]:
        from optuna.samplers import NSGAIISampler

        return {NSGAIISampler._get_generation_key(): number // self.startup}
