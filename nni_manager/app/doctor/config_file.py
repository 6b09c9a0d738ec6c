"""An experiment file: is it valid, and can its platform be used from here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from nni_manager.app.doctor import data_directory
from nni_manager.app.doctor.finding import Finding, failure, ok, warning
from nni_manager.config import admission, experiment_file
from nni_manager.domain.errors import ConfigInvalid, InvalidInput
from nni_manager.domain.experiment import ExperimentSpec


def look(path: Path, data_dir: Path) -> Iterator[Finding]:
    """`data_dir`: where algorithms of one's own are registered."""
    try:
        spec = experiment_file.read_file(path, data_dir, os.environ).spec
    except ConfigInvalid as error:
        for problem in error.problems:
            yield failure("config", str(problem), "correct the file")
        return
    yield ok("config", f"{path} is valid")
    for found in spec.warnings:
        yield warning("config", str(found), "look whether this is meant")
    wrong = data_directory.trouble(Path(spec.working_directory))
    if wrong:
        yield failure("working directory", f"experimentWorkingDirectory: {wrong}", "name another folder in the file")
    yield _platform(spec)


def _platform(spec: ExperimentSpec) -> Finding:
    name = " and ".join(platform.service for platform in spec.platforms)
    try:
        admission.check(spec)
    except InvalidInput as error:
        return failure("platform", f"{name}: {error}", "install its extra, or change the file")
    return ok("platform", f"{name} can be imported and takes this experiment")
