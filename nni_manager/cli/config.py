"""`nnictl config`: experiment files, without a daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nni_manager.domain.experiment import ExperimentSpec


@click.group()
def config() -> None:
    """Check experiment files."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Say whether FILE describes an experiment; otherwise list what is wrong with it."""
    from nni_manager.config import experiment_file

    click.echo(f"{file}: {_summary(experiment_file.load_file(file))}")


def _summary(spec: ExperimentSpec) -> str:
    trials = f"at most {spec.max_trial_number} trials" if spec.max_trial_number is not None else "any number of trials"
    platforms = " and ".join(platform.name for platform in spec.platforms)
    return f"valid; {trials} of {spec.tuner.name or spec.tuner.class_name} on {platforms}"
