"""Tuners by name: built-ins, then entry points of the group ``nni_manager.tuners``, then a user's class.

`find` imports no algorithm and runs no user's code; `create` does both.
"""

from __future__ import annotations

from nni_manager.domain.algorithm import Algorithm, Catalogue, load_user_class
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import AlgorithmSpec
from nni_manager.tuners.contract import Tuner

CATALOGUE = Catalogue(
    kind="tuner",
    group="nni_manager.tuners",
    built_in=(
        Algorithm(
            name="Random",
            location="nni_manager.tuners.random:Random",
            arguments=("seed",),
            ignored=("optimize_mode",),
        ),
        Algorithm(
            name="GridSearch",
            location="nni_manager.tuners.grid:GridSearch",
            aliases=("Grid",),
            ignored=("optimize_mode",),
        ),
        Algorithm(
            name="TPE",
            location="nni_manager.tuners.optuna_tpe:TPE",
            arguments=("optimize_mode", "seed", "tpe_args"),
        ),
    ),
    missing=(
        *("TPE_legacy", "Anneal", "Evolution", "Batch", "BatchTuner", "NetworkMorphism", "Metis", "MetisTuner", "GP"),
        *("GPTuner", "PBT", "PBTTuner", "RegularizedEvolutionTuner", "DNGO", "DNGOTuner", "PPO", "PPOTuner", "SMAC"),
        *("Hyperband", "BOHB"),
    ),
)


def find(name: str) -> Algorithm:
    """What is known of a tuner that is no user's class. Raises InvalidInput."""
    return CATALOGUE.find(name)


def create(spec: AlgorithmSpec) -> Tuner:
    """The tuner itself. Raises InvalidInput, and whatever a user's class raises."""
    if spec.class_name:
        # costs 10 ms (inspect), which built-ins need not pay
        from nni_manager.tuners.user_class import UserTuner, require_tuner

        loaded = load_user_class(spec.class_name, spec.code_directory)
        require_tuner(loaded, spec.class_name)
        return UserTuner(loaded(**spec.class_args))
    tuner = CATALOGUE.find(spec.name).create(spec.class_args)
    if not isinstance(tuner, Tuner):
        raise InvalidInput(f"name: what is installed as tuner {spec.name!r} is no nni_manager.tuners.contract.Tuner.")
    return tuner
