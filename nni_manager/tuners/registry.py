"""Tuners by name: built-ins, then entry points of the group ``nni_manager.tuners``.

`find` imports no algorithm; `create` does. Users' classes are `trial_runner.tuner_host`'s: they run in another Python.
"""

from __future__ import annotations

from nni_manager.domain.algorithm import Algorithm, Catalogue
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
            ignored=("optimize_mode",),
        ),
        Algorithm(
            name="GridSearch",
            location="nni_manager.tuners.grid:GridSearch",
            aliases=("Grid",),
            ignored=("optimize_mode",),
        ),
        Algorithm(name="TPE", location="nni_manager.tuners.optuna_tpe:TPE"),
        Algorithm(
            name="Auto",
            location="nni_manager.tuners.auto.tuner:Auto",
            required={"optimize_mode": "maximize or minimize"},
        ),
    ),
    missing=(
        *("TPE_legacy", "Anneal", "Evolution", "Batch", "BatchTuner", "NetworkMorphism", "Metis", "MetisTuner", "GP"),
        *("GPTuner", "PBT", "PBTTuner", "RegularizedEvolutionTuner", "DNGO", "DNGOTuner", "PPO", "PPOTuner", "SMAC"),
        *("Hyperband", "BOHB"),
    ),
)


def find(name: str) -> Algorithm:
    """The description of a tuner that is no user's class. Raises InvalidInput."""
    return CATALOGUE.find(name)


def create(spec: AlgorithmSpec) -> Tuner:
    """The tuner itself, of a `spec` with a name. Raises InvalidInput."""
    tuner = CATALOGUE.find(spec.name).create(spec.class_args)
    if not isinstance(tuner, Tuner):
        raise InvalidInput(f"name: what is installed as tuner {spec.name!r} is no nni_manager.tuners.contract.Tuner.")
    return tuner
