"""Assessors by name: the classes in the modules of this folder, then entry points of ``nni_manager.assessors``.

The registry imports every module of the folder, so assessors import heavy packages in their methods. Users' classes
belong to `trial_runner.tuner_host`, as they run in another Python.
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
    """The assessor of a `spec` with a name. Raises InvalidInput.

    `optimize_mode`: the experiment's direction, if the spec has none and the assessor uses one.
    """
    algorithm, arguments = CATALOGUE.find(spec.name), dict(spec.class_args)
    if optimize_mode and arguments.get(_MODE) is None and algorithm.is_built_in and _MODE in algorithm.arguments:
        arguments[_MODE] = optimize_mode
    assessor = algorithm.create(arguments)
    if not isinstance(assessor, Assessor):
        raise InvalidInput(
            f"name: the object installed as assessor {spec.name!r} is not a nni_manager.assessors.contract.Assessor."
        )
    return assessor
