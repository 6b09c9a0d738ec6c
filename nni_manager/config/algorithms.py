"""The types of the arguments that built-in tuners and assessors take. The registries say which algorithms there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nni_manager.assessors import registry as assessors
from nni_manager.config.reading.scalars import Parse, number, one_of, whole_number
from nni_manager.domain.algorithm import Catalogue
from nni_manager.tuners import registry as tuners

#: An argument is checked by a function of `scalars`, or is itself a group of arguments.
Arguments = Mapping[str, "Parse | Arguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmKind:
    """A kind of algorithm, tuner or assessor: all that there are, and the arguments of the built-in ones."""

    catalogue: Catalogue
    #: Name of a built-in algorithm → its arguments. Algorithms of other packages check their own.
    arguments: Mapping[str, Arguments]

    @property
    def noun(self) -> str:
        """The word for the kind in messages: ``tuner`` or ``assessor``."""
        return self.catalogue.kind


_OPTIMIZE_MODE = one_of("maximize", "minimize")
_SEED = whole_number(0)

TUNERS = AlgorithmKind(
    catalogue=tuners.CATALOGUE,
    arguments={
        "Random": {"seed": _SEED, "optimize_mode": _OPTIMIZE_MODE},
        # a grid has no better or worse; NNI accepts the argument and so many configs carry it
        "GridSearch": {"optimize_mode": _OPTIMIZE_MODE},
        "TPE": {
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
    },
)

ASSESSORS = AlgorithmKind(
    catalogue=assessors.CATALOGUE,
    arguments={"Medianstop": {"optimize_mode": _OPTIMIZE_MODE, "start_step": whole_number(0)}},
)
