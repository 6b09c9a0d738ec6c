"""Assessors by name: the classes in the modules of this folder, then entry points of ``nni_manager.assessors``.

The registry imports every module of the folder, so an assessor imports what is heavy in its methods. Users' classes are
`trial_runner.tuner_host`'s: they run in another Python.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import nni_manager.assessors
from nni_manager.assessors.contract import Assessor
from nni_manager.domain.algorithm import Algorithm, AlgorithmSpec, Catalogue
from nni_manager.domain.errors import InvalidInput

_MODE = "optimize_mode"


def _built_in() -> Iterator[Algorithm]:
    for module in pkgutil.iter_modules(nni_manager.assessors.__path__, f"{nni_manager.assessors.__name__}."):
        if module.name != __name__:
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, type) and issubclass(value, Assessor) and value is not Assessor:
                    yield Algorithm(name=name, location=f"{module.name}:{name}")


CATALOGUE = Catalogue(kind="assessor", group="nni_manager.assessors", built_in=tuple(_built_in()), missing=())


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
