"""Assessors by name: built-ins, then entry points of the group ``nni_manager.assessors``.

`find` imports no algorithm; `create` does. Users' classes are `trial_runner.tuner_host`'s: they run in another Python.
"""

from __future__ import annotations

from nni_manager.assessors.contract import Assessor
from nni_manager.domain.algorithm import Algorithm, Catalogue
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import AlgorithmSpec

_MODE = "optimize_mode"
CATALOGUE = Catalogue(
    kind="assessor",
    group="nni_manager.assessors",
    built_in=(
        Algorithm(name="Medianstop", location="nni_manager.assessors.medianstop:Medianstop"),
        Algorithm(name="Curvefitting", location="nni_manager.assessors.curvefitting:Curvefitting"),
        Algorithm(name="ASHA", location="nni_manager.assessors.asha:ASHA"),
    ),
    missing=(),
)


def find(name: str) -> Algorithm:
    """The description of an assessor that is no user's class. Raises InvalidInput."""
    return CATALOGUE.find(name)


def create(spec: AlgorithmSpec, *, optimize_mode: str | None = None) -> Assessor:
    """The assessor itself, of a `spec` with a name. Raises InvalidInput.

    `optimize_mode`: the experiment's direction, where the spec says none and the assessor goes by one.
    """
    algorithm, arguments = CATALOGUE.find(spec.name), dict(spec.class_args)
    if optimize_mode and arguments.get(_MODE) is None and algorithm.is_built_in and _MODE in algorithm.arguments:
        arguments[_MODE] = optimize_mode
    assessor = algorithm.create(arguments)
    if not isinstance(assessor, Assessor):
        raise InvalidInput(
            f"name: what is installed as assessor {spec.name!r} is no nni_manager.assessors.contract.Assessor."
        )
    return assessor
