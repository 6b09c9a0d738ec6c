"""The tuners and assessors that a config may name, with the arguments each takes. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nni_manager.config.scalars import Parse, number, one_of, whole_number

#: An argument is checked by a function of `scalars`, or is itself a group of arguments.
Arguments = Mapping[str, "Parse | Arguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """A built-in. Names are compared without regard to case."""

    name: str
    aliases: tuple[str, ...] = ()
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All tuners, or all assessors."""

    #: ``tuner`` or ``assessor``: the word of messages.
    noun: str
    offered: tuple[Algorithm, ...]
    #: Names that NNI knows and this version does not offer.
    missing: tuple[str, ...]


_OPTIMIZE_MODE = one_of("maximize", "minimize")
_SEED = whole_number(0)

TUNERS = Family(
    noun="tuner",
    offered=(
        Algorithm(name="Random", arguments={"seed": _SEED, "optimize_mode": _OPTIMIZE_MODE}),
        # a grid has no better or worse; NNI accepts the argument and so many configs carry it
        Algorithm(name="GridSearch", aliases=("Grid",), arguments={"optimize_mode": _OPTIMIZE_MODE}),
        Algorithm(
            name="TPE",
            arguments={
                "optimize_mode": _OPTIMIZE_MODE,
                "seed": _SEED,
                "tpe_args": {
                    "constant_liar_type": one_of("best", "worst", "mean"),
                    "n_startup_jobs": whole_number(0),
                    "n_ei_candidates": whole_number(1),
                    "linear_forgetting": whole_number(1),
                    "prior_weight": number(0),
                    "gamma": number(0, exclusive=True),
                },
            },
        ),
    ),
    missing=(
        "TPE_legacy", "Anneal", "Evolution", "Batch", "BatchTuner", "NetworkMorphism", "Metis", "MetisTuner", "GP",
        "GPTuner", "PBT", "PBTTuner", "RegularizedEvolutionTuner", "DNGO", "DNGOTuner", "PPO", "PPOTuner", "SMAC",
        "Hyperband", "BOHB",
    ),
)  # fmt: skip

ASSESSORS = Family(
    noun="assessor",
    offered=(Algorithm(name="Medianstop", arguments={"optimize_mode": _OPTIMIZE_MODE, "start_step": whole_number(0)}),),
    missing=("Curvefitting",),
)
