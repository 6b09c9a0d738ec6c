"""The verdict of `nnictl config check` on one file: the checks of `create`, made without a daemon."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nni_manager.cli.caller import own_environment
from nni_manager.config import admission, experiment_file
from nni_manager.domain.errors import ConfigInvalid, InvalidInput, Problem
from nni_manager.domain.experiment import ExperimentSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The verdict on one experiment file."""

    file: str
    #: One line about the experiment; empty when the file is invalid.
    summary: str = ""
    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "valid": not self.problems,
            "problems": [asdict(problem) for problem in self.problems],
            "warnings": [asdict(warning) for warning in self.warnings],
        }


def of_file(file: Path, data_directory: Path, python: str = "") -> CheckResult:
    """The verdict on an experiment file. Reads it and the files that it names.

    `python`: the requested Python for a user's tuner, or empty.
    """
    try:
        spec = experiment_file.read_file(file, data_directory, os.environ).spec
    except ConfigInvalid as error:
        return CheckResult(file=str(file), problems=error.problems, warnings=error.warnings)
    try:
        admission.check_here(spec, data_directory, own_environment(), file=str(file), python=python)
    except InvalidInput as error:
        return CheckResult(file=str(file), problems=_problems(error, str(file)), warnings=spec.warnings)
    return CheckResult(
        file=str(file), summary=_summary(spec), warnings=[*spec.warnings, *admission.without_direction(spec, str(file))]
    )


def _problems(error: InvalidInput, file: str) -> Sequence[Problem]:
    return error.problems if isinstance(error, ConfigInvalid) else [Problem(message=str(error), file=file)]


def _summary(spec: ExperimentSpec) -> str:
    trials = f"at most {spec.max_trial_number} trials" if spec.max_trial_number is not None else "any number of trials"
    platforms = " and ".join(platform.service for platform in spec.platforms)
    return f"valid; {trials} of {spec.tuner.name or spec.tuner.class_name} on {platforms}"
