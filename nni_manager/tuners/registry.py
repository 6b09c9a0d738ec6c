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
        Algorithm(name="Anneal", location="nni_manager.tuners.anneal:Anneal"),
        Algorithm(name="Evolution", location="nni_manager.tuners.evolution:Evolution"),
        Algorithm(name="CmaEs", location="nni_manager.tuners.cma_es:CmaEs"),
        Algorithm(name="GPTuner", location="nni_manager.tuners.gp:GPTuner", aliases=("GP",)),
        Algorithm(name="SMAC", location="nni_manager.tuners.smac:SMAC"),
    ),
    missing=(
        *("TPE_legacy", "Batch", "BatchTuner", "NetworkMorphism", "Metis", "MetisTuner"),
        *("PBT", "PBTTuner", "RegularizedEvolutionTuner", "DNGO", "DNGOTuner", "PPO", "PPOTuner"),
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
