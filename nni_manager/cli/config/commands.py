"""`nnictl config`: checks and converts experiment files, shows an experiment's config."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nni_manager.cli.caller import data_directory_option, program, resolve_data_directory, tuner_python_option
from nni_manager.cli.command_group import BAD_INPUT
from nni_manager.cli.experiment import selection
from nni_manager.cli.output.values import echo_json, warn
from nni_manager.cli.session import Connect, to_read

if TYPE_CHECKING:
    from nni_manager.cli.config.config_verdict import CheckResult


@click.group()
def config() -> None:
    """Check and convert experiment files, show an experiment's."""


@config.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
@data_directory_option
@tuner_python_option
@click.option("--json", "as_json", is_flag=True, help="Print a list with a verdict for each file.")
def check(files: tuple[Path, ...], data_dir: str | None, tuner_python: str, as_json: bool) -> None:
    """Say whether each FILE describes an experiment that can be made here; otherwise list what is wrong with it. No
    daemon is needed.

    Secrets are looked up, and not shown. A tuner or assessor of your own is imported, by the Python that would run it.
    """
    from nni_manager.cli.config import config_verdict

    verdicts = [config_verdict.of_file(file, resolve_data_directory(data_dir), program(tuner_python)) for file in files]
    if as_json:
        echo_json([verdict.as_json() for verdict in verdicts])
    else:
        for verdict in verdicts:
            _tell(verdict)
    if any(verdict.problems for verdict in verdicts):
        sys.exit(BAD_INPUT)


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Also print what only nni_manager goes by; NNI 3.0 refuses it.")
def convert(file: Path, everything: bool) -> None:
    """Print a file of NNI's first format (`trainingServicePlatform`) in NNI's second, for nni_manager and NNI 3.0.

    Values, secrets included, are as written; what is left out is named on standard error. No file that it names is
    needed."""
    import yaml

    from nni_manager.config import experiment_file

    values, losses = experiment_file.convert_file(file, everything=everything)
    click.echo(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120), nl=False)
    warn(map(str, losses))


@config.command()
@to_read
@selection.id_argument
def show(connect: Connect, *, id: str | None) -> None:
    """Print an experiment's config as it is now, as JSON. Secrets are masked."""
    client = connect()
    echo_json(client.experiment(selection.choose(client, id))["config"])


def _tell(verdict: CheckResult) -> None:
    if verdict.summary:
        click.echo(f"{verdict.file}: {verdict.summary}")
    for problem in verdict.problems:
        click.echo(str(problem), err=True)
    warn(map(str, verdict.warnings))
