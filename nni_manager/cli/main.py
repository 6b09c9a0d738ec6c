"""The two commands: `nnictl` for experiments, `nni-manager` for the daemon."""

from __future__ import annotations

import click

from nni_manager import __version__
from nni_manager.cli.command_group import CommandGroup
from nni_manager.cli.config import config
from nni_manager.cli.create import create, resume, stop
from nni_manager.cli.experiment import experiment
from nni_manager.cli.log import log
from nni_manager.cli.runner import runner
from nni_manager.cli.serve import serve
from nni_manager.cli.trial import trial
from nni_manager.cli.update import update

_SETTINGS = {"help_option_names": ["-h", "--help"]}
_version_option = click.version_option(__version__, "--version", "-v", message="%(version)s")


@click.group("nnictl", cls=CommandGroup, context_settings=_SETTINGS)
@_version_option
def nnictl() -> None:
    """Start, watch and end experiments.

    Commands find the daemon through its data directory and start it when none runs. Where an experiment's ID is
    asked for, its first characters are enough; where it may be left out, the only open experiment is meant.
    """


@click.group("nni-manager", cls=CommandGroup, context_settings=_SETTINGS)
@_version_option
def nni_manager() -> None:
    """The daemon that owns experiments."""


for _command in (create, resume, stop, experiment, trial, log, update, config):
    nnictl.add_command(_command)
for _command in (serve, runner):
    nni_manager.add_command(_command)
