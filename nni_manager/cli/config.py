"""`nnictl config`: experiment files, and what experiments were made with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nni_manager.cli import selection
from nni_manager.cli.caller import own_environment, program, tuner_python_option
from nni_manager.cli.data_directory import data_directory_option, resolve
from nni_manager.cli.output import echo_json, warn
from nni_manager.cli.session import Connect, connected

if TYPE_CHECKING:
    from nni_manager.domain.experiment import ExperimentSpec


@click.group()
def config() -> None:
    """Check experiment files, show an experiment's."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
@data_directory_option
@tuner_python_option
def check(file: Path, data_dir: str | None, tuner_python: str) -> None:
    """Say whether FILE describes an experiment; otherwise list what is wrong with it. No daemon is needed.

    A tuner or assessor of your own is imported, by the Python that would run it.
    """
    from nni_manager.cli import class_args
    from nni_manager.config import experiment_file

    spec = experiment_file.load_file(file, resolve(data_dir))
    python = program(tuner_python)
    class_args.check(spec, resolve(data_dir), str(file), python)
    _check_classes(spec, python, str(file))
    click.echo(f"{file}: {_summary(spec)}")
    warn(map(str, spec.warnings))


@config.command()
@connected
@selection.id_argument
def show(connect: Connect, *, id: str | None) -> None:
    """Print what an experiment is configured with now, as JSON. Secrets are masked."""
    client = connect()
    echo_json(client.experiment(selection.choose(client, id))["config"])


def _check_classes(spec: ExperimentSpec, python: str, file: str) -> None:
    """As a daemon on this machine does when the experiment is made. Raises ConfigInvalid."""
    if not (python or spec.tuner_python or spec.has_user_class):
        return  # nothing to ask, and what asks takes time to import
    import asyncio

    from nni_manager.config import user_classes

    environment = own_environment()
    chosen = user_classes.python(python or spec.tuner_python, environment, file=file)
    asyncio.run(user_classes.check(spec, chosen, environment, file=file))


def _summary(spec: ExperimentSpec) -> str:
    trials = f"at most {spec.max_trial_number} trials" if spec.max_trial_number is not None else "any number of trials"
    platforms = " and ".join(platform.name for platform in spec.platforms)
    return f"valid; {trials} of {spec.tuner.name or spec.tuner.class_name} on {platforms}"
