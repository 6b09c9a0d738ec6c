"""Tuners by name: built-ins, then entry points of the group ``nni_manager.tuners``.

`find` imports no algorithm; `create` does. Users' classes belong to `trial_runner.tuner_host`, as they run in another
Python.
"""

from __future__ import annotations

from dataclasses import replace

from nni_manager.domain.algorithm import Algorithm, AlgorithmSpec, Catalogue, NniAlgorithm
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.objectives import Goals
from nni_manager.tuners.contract import Tuner
from nni_manager.tuners.distinct import Distinct

CATALOGUE = Catalogue(
    kind="tuner",
    group="nni_manager.tuners",
    built_in=(
        Algorithm(
            name="Random",
            location="nni_manager.tuners.random:Random",
            ignored=("optimize_mode",),
            ends=True,
            is_wrapped=True,
            with_objectives="nni_manager.tuners.random:Random",
        ),
        Algorithm(
            name="GridSearch",
            location="nni_manager.tuners.grid:GridSearch",
            aliases=("Grid",),
            ends=True,
            ignored=("optimize_mode",),
        ),
        Algorithm(
            name="TPE",
            location="nni_manager.tuners.optuna_tpe:TPE",
            with_objectives="nni_manager.tuners.objectives_tpe:ObjectivesTPE",
            ends=True,
            is_wrapped=True,
        ),
        Algorithm(
            name="Auto",
            location="nni_manager.tuners.auto.tuner:Auto",
            required={"optimize_mode": "maximize or minimize"},
            ends=True,
            is_wrapped=True,
        ),
        Algorithm(
            name="NSGA2",
            location="nni_manager.tuners.nsga2:NSGA2",
            with_objectives="nni_manager.tuners.nsga2:NSGA2",
            needs_objectives=True,
            ends=True,
            is_wrapped=True,
        ),
        Algorithm(
            name="Batch",
            location="nni_manager.tuners.batch:Batch",
            aliases=("BatchTuner",),
            ignored=("optimize_mode",),
            has_own_space=True,
        ),
        Algorithm(name="Anneal", location="nni_manager.tuners.anneal:Anneal", ends=True, is_wrapped=True),
        Algorithm(name="Evolution", location="nni_manager.tuners.evolution:Evolution", ends=True, is_wrapped=True),
        Algorithm(name="CmaEs", location="nni_manager.tuners.cma_es:CmaEs", ends=True, is_wrapped=True),
        Algorithm(
            name="GPTuner", location="nni_manager.tuners.models.gp:GPTuner", aliases=("GP",), ends=True, is_wrapped=True
        ),
        Algorithm(name="SMAC", location="nni_manager.tuners.models.smac:SMAC", ends=True, is_wrapped=True),
        Algorithm(name="Hyperband", location="nni_manager.tuners.hyperband:Hyperband", beside=("TRIAL_BUDGET",)),
        Algorithm(name="BOHB", location="nni_manager.tuners.bohb:BOHB", beside=("TRIAL_BUDGET",)),
    ),
    of_nni=(
        NniAlgorithm(
            name="TPE_legacy",
            class_name="nni.algorithms.hpo.hyperopt_tuner.HyperoptTuner",
            class_args={"algorithm_name": "tpe"},
            package="nni[Anneal]",
        ),
        NniAlgorithm(name="Metis", class_name="nni.algorithms.hpo.metis_tuner.MetisTuner", aliases=("MetisTuner",)),
        NniAlgorithm(name="PBT", class_name="nni.algorithms.hpo.pbt_tuner.PBTTuner", aliases=("PBTTuner",)),
        NniAlgorithm(
            name="RegularizedEvolutionTuner",
            class_name="nni.algorithms.hpo.regularized_evolution_tuner.RegularizedEvolutionTuner",
        ),
        NniAlgorithm(
            name="DNGO",
            class_name="nni.algorithms.hpo.dngo_tuner.DNGOTuner",
            aliases=("DNGOTuner",),
            package="nni[DNGO]",
        ),
    ),
    missing=("NetworkMorphism", "PPO", "PPOTuner"),
)


def create(spec: AlgorithmSpec) -> Tuner:
    """The tuner of a `spec` with a name. Raises InvalidInput."""
    algorithm = CATALOGUE.find(spec.name)
    if spec.objectives and algorithm.with_objectives:
        algorithm = replace(algorithm, location=algorithm.with_objectives)
    tuner = algorithm.create(spec.class_args)
    if not isinstance(tuner, Tuner):
        raise InvalidInput(
            f"name: the object installed as tuner {spec.name!r} is not a nni_manager.tuners.contract.Tuner."
        )
    if spec.objectives:
        tuner.pursue(Goals.of(spec.objectives, spec.constraints))
    return Distinct(tuner) if algorithm.is_wrapped else tuner
