"""Arguments of registered algorithms, judged by their own validators before an experiment is made of them.

This is the caller's part, as with NNI: the daemon runs no user's code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from nni_manager.domain.errors import ConfigInvalid, Problem

if TYPE_CHECKING:
    from nni_manager.domain.experiment import AlgorithmSpec, ExperimentSpec

# as in config.registered_algorithms, which costs time to import and is hardly ever needed
_FILE = "algorithms.json"


def check_text(text: str, directory: str, file: str, data_directory: Path) -> None:
    """An experiment file's; reads it only where something is registered. Raises ConfigInvalid."""
    if not (data_directory / _FILE).exists():
        return
    from nni_manager.config import experiment_file

    spec = experiment_file.load(text, directory=Path(directory), file=file, data_directory=data_directory)
    check(spec, data_directory, file)


def check(spec: ExperimentSpec, data_directory: Path, file: str) -> None:
    """Raises ConfigInvalid with what the validators say."""
    given = {"tuner": spec.tuner, "assessor": spec.assessor}
    found = {kind: _objection(kind, one, data_directory) for kind, one in given.items() if one is not None}
    problems = [Problem(message=text, field=f"{kind}.classArgs", file=file) for kind, text in found.items() if text]
    if problems:
        raise ConfigInvalid(problems)


def _objection(kind: str, algorithm: AlgorithmSpec, data_directory: Path) -> str:
    if not algorithm.class_name:
        return ""
    from nni_manager.cli import user_code
    from nni_manager.config.registered_algorithms import read_all

    for one in read_all(data_directory):
        names = (one.kind, one.class_name, one.code_directory)
        if one.validator and names == (kind, algorithm.class_name, algorithm.code_directory):
            refusal = user_code.objection(one.code_directory, one.validator, json.dumps(dict(algorithm.class_args)))
            return refusal and f"{one.name} does not take them: {refusal}"
    return ""
