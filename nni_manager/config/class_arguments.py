"""Checks arguments of registered algorithms with their validators, in the command, as NNI does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nni_manager.domain.errors import ConfigInvalid, Problem

if TYPE_CHECKING:
    from nni_manager.domain.algorithm import AlgorithmSpec
    from nni_manager.domain.experiment import ExperimentSpec

# the same as in config.registered_algorithms, which takes time to import and is rarely needed
_FILE = "algorithms.json"


def check_text(
    text: str, directory: str, file: str, data_directory: Path, python: str, environment: Mapping[str, str]
) -> None:
    """Check the arguments in an experiment file's text if any algorithm is registered.

    Raises ConfigInvalid.
    """
    if not (data_directory / _FILE).exists():
        return
    from nni_manager.config import experiment_file

    spec = experiment_file.load(text, directory=Path(directory), file=file, data_directory=data_directory)
    check(spec, data_directory, file, python, environment)


def check(spec: ExperimentSpec, data_directory: Path, file: str, python: str, environment: Mapping[str, str]) -> None:
    """Check the arguments of an experiment's tuner and assessor.

    `python`: the requested Python for them, or empty; `environment`: the caller's. Raises ConfigInvalid with the
    messages of the validators.
    """
    given = {"tuner": spec.tuner, "assessor": spec.assessor}
    python = python or spec.tuner_python
    found = {
        kind: _objection(kind, one, data_directory, python, environment)
        for kind, one in given.items()
        if one is not None
    }
    problems = [Problem(message=text, field=f"{kind}.classArgs", file=file) for kind, text in found.items() if text]
    if problems:
        raise ConfigInvalid(problems)


def _objection(
    kind: str, algorithm: AlgorithmSpec, data_directory: Path, python: str, environment: Mapping[str, str]
) -> str:
    if not algorithm.class_name:
        return ""
    import asyncio

    from nni_manager.config import user_classes
    from nni_manager.config.registered_algorithms import read_all

    for one in read_all(data_directory):
        names = (one.kind, one.class_name, one.code_directory)
        if one.validator and names == (kind, algorithm.class_name, algorithm.code_directory):
            chosen = user_classes.python(python, environment)
            asking = user_classes.objection(
                one.validator, one.code_directory, algorithm.class_args, chosen, environment
            )
            refusal = asyncio.run(asking)
            return refusal and f"{one.name} refuses these arguments: {refusal}"
    return ""
