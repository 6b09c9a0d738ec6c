"""The two commands: `nnictl` for experiments, `nni-manager` for the daemon.

`nni-manager` has every command of `nnictl`, because NNI's package also installs an `nnictl`.
"""

from __future__ import annotations

import click

from nni_manager import __version__
from nni_manager.cli import not_here
from nni_manager.cli.command_group import CommandGroup

#: Help is as wide as the terminal; on a pipe, 80 columns.
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 1000}
_version_option = click.version_option(__version__, "--version", "-v", message="%(version)s")
_OF_EXPERIMENTS = {
    "algo": "config.algo:algo",
    "config": "config.commands:config",
    "create": "experiment.create:create",
    "experiment": "experiment.listing:experiment",
    "log": "trial.log:log",
    "plan": "experiment.create:plan",
    "platform": "config.platform:platform",
    "resume": "experiment.create:resume",
    "stop": "experiment.update:stop",
    "tensorboard": "experiment.webui:tensorboard",
    "top": "experiment.watch:top",
    "trial": "trial.commands:trial",
    "update": "experiment.update:update",
    "view": "experiment.create:view",
    "webui": "experiment.webui:webui",
}
#: Commands of `nni-manager` only; its `stop` without an experiment ends the daemon.
_OF_THE_DAEMON = {
    "doctor": "daemon.own_daemon:doctor",
    "identity": "daemon.own_daemon:identity",
    "nni-hook": "daemon.serve:nni_hook",
    "runner": "daemon.serve:runner",
    "serve": "daemon.serve:serve",
    "stand-in-path": "daemon.serve:stand_in_path",
    "status": "daemon.own_daemon:status",
    "stop": "daemon.own_daemon:stop",
}


@click.group("nnictl", cls=CommandGroup, late=_OF_EXPERIMENTS, context_settings=_SETTINGS)
@_version_option
def nnictl() -> None:
    """Start, watch and stop experiments.

    Commands find the daemon through its data directory and start it if it does not run. With --manager, they use a
    daemon on another machine. The first characters of an experiment's ID are enough. An optional ID defaults to the
    only open experiment.
    """


@click.group("nni-manager", cls=CommandGroup, late=_OF_EXPERIMENTS | _OF_THE_DAEMON, context_settings=_SETTINGS)
@_version_option
def nni_manager() -> None:
    """Run and manage the daemon. Includes every command of nnictl."""


not_here.add_to(nnictl, not_here.INSTEAD)
not_here.add_to(nni_manager, not_here.INSTEAD)
