"""`nnictl config`: checks and converts experiment files, shows an experiment's config."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from nni_manager.cli.command_group import BAD_INPUT
from nni_manager.cli.experiment import selection
from nni_manager.cli.output import echo, echo_json, warn
from nni_manager.cli.session import Connect, data_directory_option, to_read, tuner_python_option
from nni_manager.client.caller import own_environment, program, resolve_data_directory
from nni_manager.domain.errors import ConfigInvalid, InvalidInput, Problem
from nni_manager.domain.experiment import ExperimentSpec


@click.group()
def config() -> None:
    """Check, convert and show experiment configs."""


@config.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
@data_directory_option
@tuner_python_option
@click.option("--json", "as_json", is_flag=True, help="Print a list with a verdict for each file.")
def check(files: tuple[Path, ...], data_dir: str | None, tuner_python: str, as_json: bool) -> None:
    """Check whether each FILE is valid and can run here. Needs no daemon.

    Secrets are looked up, but not shown. Your own tuner or assessor is imported by the Python that would run it.
    """
    verdicts = [_check_file(file, resolve_data_directory(data_dir), program(tuner_python)) for file in files]
    if as_json:
        echo_json([verdict.as_json() for verdict in verdicts])
    else:
        for verdict in verdicts:
            if verdict.summary:
                echo(f"{verdict.file}: {verdict.summary}")
            for problem in verdict.problems:
                echo(str(problem), err=True)
            warn(map(str, verdict.warnings))
    if any(verdict.problems for verdict in verdicts):
        sys.exit(BAD_INPUT)


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--all", "everything", is_flag=True, help="Also print fields that only nni_manager uses; NNI 3.0 refuses them."
)
def convert(file: Path, everything: bool) -> None:
    """Print a file of NNI's first format in NNI's second format.

    The first format has `trainingServicePlatform`. nni_manager and NNI 3.0 read the output. Values, including secrets,
    are unchanged. Omitted fields are listed on standard error. Files that the config names need not exist.
    """
    import yaml

    from nni_manager.config import experiment_file

    values, losses = experiment_file.convert_file(file, everything=everything)
    echo(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120), nl=False)
    warn(map(str, losses))


@config.command()
def schema() -> None:
    """Print the JSON schema of experiment files, for editors.

    Name the schema's file at the top of an experiment file: `# yaml-language-server: $schema=FILE`.
    """
    from nni_manager.config.schema import experiment_schema

    echo_json(experiment_schema())


@config.command()
@to_read
@selection.id_argument
def show(connect: Connect, *, id: str | None) -> None:
    """Print an experiment's current config as JSON. Secrets are masked."""
    client = connect()
    echo_json(client.experiment(selection.choose(client, id))["config"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """The verdict on an experiment file: the checks of `create` without a daemon."""

    file: str
    #: One line about the experiment; empty if the file is invalid.
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


def _check_file(file: Path, data_directory: Path, python: str) -> _Verdict:
    """The verdict on an experiment file. Reads it and the files that it names.

    `python`: the requested Python for a user's tuner, or empty.
    """
    from nni_manager.config import admission, experiment_file

    try:
        spec = experiment_file.read_file(file, data_directory, os.environ).spec
    except ConfigInvalid as error:
        return _Verdict(file=str(file), problems=error.problems, warnings=error.warnings)
    try:
        warnings = admission.check_here(spec, data_directory, own_environment(), file=str(file), python=python)
    except InvalidInput as error:
        told = [Problem(message=str(error), file=str(file))]
        problems = error.problems if isinstance(error, ConfigInvalid) else told
        return _Verdict(file=str(file), problems=problems, warnings=spec.warnings)
    return _Verdict(file=str(file), summary=_summary(spec), warnings=warnings)


def _summary(spec: ExperimentSpec) -> str:
    trials = f"at most {spec.max_trial_number} trials" if spec.max_trial_number is not None else "any number of trials"
    platforms = " and ".join(platform.service for platform in spec.platforms)
    return f"valid; {trials} of {spec.tuner.name or spec.tuner.class_name} on {platforms}"
