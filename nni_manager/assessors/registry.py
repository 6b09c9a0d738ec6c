"""Assessors by name: built-ins, then entry points of the group ``nni_manager.assessors``, then a user's class.

`find` and `check` run no user's code; `create` does.
"""

from __future__ import annotations

from nni_manager.assessors.contract import Assessor
from nni_manager.domain.algorithm import Algorithm, Catalogue, check_user_class, load_user_class
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import AlgorithmSpec

CATALOGUE = Catalogue(
    kind="assessor",
    group="nni_manager.assessors",
    built_in=(
        Algorithm(
            name="Medianstop",
            location="nni_manager.assessors.medianstop:Medianstop",
            arguments=("optimize_mode", "start_step"),
        ),
    ),
    missing=("Curvefitting",),
)


def find(name: str) -> Algorithm:
    """What is known of an assessor that is no user's class. Raises InvalidInput."""
    return CATALOGUE.find(name)


def check(spec: AlgorithmSpec) -> None:
    """Everything that can be said about it beforehand. Raises InvalidInput naming the field below `assessor`."""
    if spec.class_name:
        check_user_class(spec.class_name, spec.code_directory)
        return
    algorithm = CATALOGUE.find(spec.name)
    if algorithm in CATALOGUE.built_in:
        algorithm.create(spec.class_args)
    else:
        algorithm.check_arguments(spec.class_args)


def create(spec: AlgorithmSpec) -> Assessor:
    """The assessor itself. Raises InvalidInput, and whatever a user's class raises."""
    if spec.class_name:
        from nni_manager.assessors.user_class import UserAssessor

        return UserAssessor(load_user_class(spec.class_name, spec.code_directory)(**spec.class_args))
    assessor = CATALOGUE.find(spec.name).create(spec.class_args)
    if not isinstance(assessor, Assessor):
        raise InvalidInput(
            f"name: what is installed as assessor {spec.name!r} is no nni_manager.assessors.contract.Assessor."
        )
    return assessor
