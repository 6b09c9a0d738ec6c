"""The two commands: `nnictl` for experiments, `nni-manager` for the daemon.

NNI's own package has a `nnictl` as well; so `nni-manager` knows every command.
"""

from __future__ import annotations

import click

from nni_manager import __version__
from nni_manager.cli import unsupported
from nni_manager.cli.command_group import CommandGroup
from nni_manager.cli.config.algo import algo
from nni_manager.cli.config.commands import config
from nni_manager.cli.config.platform import platform
from nni_manager.cli.daemon import manager_log, own_daemon
from nni_manager.cli.daemon.doctor import doctor
from nni_manager.cli.daemon.identity import identity
from nni_manager.cli.daemon.nni_hook import nni_hook
from nni_manager.cli.daemon.serve import runner, serve, stand_in_path
from nni_manager.cli.experiment.create import create, resume, view
from nni_manager.cli.experiment.export import export
from nni_manager.cli.experiment.import_results import import_results
from nni_manager.cli.experiment.listing import experiment
from nni_manager.cli.experiment.plan import plan
from nni_manager.cli.experiment.prune import prune
from nni_manager.cli.experiment.report import report
from nni_manager.cli.experiment.stop import stop
from nni_manager.cli.experiment.tensorboard import tensorboard
from nni_manager.cli.experiment.top import top
from nni_manager.cli.experiment.update import update
from nni_manager.cli.experiment.webui import webui
from nni_manager.cli.trial.commands import trial
from nni_manager.cli.trial.download import download
from nni_manager.cli.trial.log import log

#: Help is as wide as the terminal; on a pipe, 80 columns.
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 1000}
_version_option = click.version_option(__version__, "--version", "-v", message="%(version)s")


@click.group("nnictl", cls=CommandGroup, context_settings=_SETTINGS)
@_version_option
def nnictl() -> None:
    """Start, watch and end experiments.

    Commands find the daemon through its data directory and start it when none runs; with --manager they speak to one
    elsewhere. Where an experiment's ID is asked for, its first characters are enough; where it may be left out, the
    only open experiment is meant.
    """


@click.group("nni-manager", cls=CommandGroup, context_settings=_SETTINGS)
@_version_option
def nni_manager() -> None:
    """The daemon that owns experiments, and every command of nnictl."""


for _command in (
    create,
    resume,
    view,
    stop,
    experiment,
    trial,
    log,
    update,
    config,
    algo,
    top,
    tensorboard,
    webui,
    plan,
    platform,
    *unsupported.commands,
):
    nnictl.add_command(_command)
    nni_manager.add_command(_command)
for _command in (export, import_results, report, prune, *unsupported.experiment_commands):
    experiment.add_command(_command)
trial.add_command(download)
for _command in (manager_log.stdout, manager_log.stderr):
    log.add_command(_command)
#: Commands of `nni-manager` only; its `stop` without an experiment ends the daemon.
for _command in (serve, own_daemon.status, own_daemon.stop, runner, stand_in_path, nni_hook, doctor, identity):
    nni_manager.add_command(_command)
