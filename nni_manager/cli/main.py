"""The two commands: `nnictl` for experiments, `nni-manager` for the daemon.

NNI's own package has a `nnictl` as well; so `nni-manager` knows every command.
"""

from __future__ import annotations

import click

from nni_manager import __version__
from nni_manager.cli.command_group import CommandGroup
from nni_manager.cli.config.algo import algo
from nni_manager.cli.config.commands import config
from nni_manager.cli.config.platform import platform
from nni_manager.cli.daemon import own_daemon
from nni_manager.cli.daemon.own_daemon import doctor, identity
from nni_manager.cli.daemon.serve import nni_hook, runner, serve, stand_in_path
from nni_manager.cli.experiment.create import create, plan, resume, view
from nni_manager.cli.experiment.export import export, report
from nni_manager.cli.experiment.import_results import import_results
from nni_manager.cli.experiment.listing import experiment
from nni_manager.cli.experiment.prune import prune
from nni_manager.cli.experiment.update import stop, update
from nni_manager.cli.experiment.watch import top
from nni_manager.cli.experiment.webui import tensorboard, webui
from nni_manager.cli.trial.commands import trial
from nni_manager.cli.trial.log import download, log

#: Commands of NNI's `nnictl` that are not supported, and what each prints: what to do instead.
_ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}
_NO_ANNOTATIONS = "search spaces are not made from code annotations; write searchSpace in the experiment file by hand"
_INSTEAD = {
    "jupyter-extension": "there is no JupyterLab extension; open the experiment's page (`nnictl webui url`) in a"
    " browser beside it",
    "hello": "there is no example to copy; the folder configs/ of the source has experiments that run as they are",
    "package": "algorithms are registered with `nnictl algo` now; see `nnictl algo --help`",
    "ss_gen": _NO_ANNOTATIONS,
    "auto_gen": _NO_ANNOTATIONS,
    "trainingservice": "platforms of other packages need no registration; installing a package with an entry point in"
    " nni_manager.platforms is enough",
}
_INSTEAD_OF_EXPERIMENT = {
    "save": "an experiment's folder holds all of it; stop the experiment and copy the folder that `nnictl experiment"
    " show` names",
    "load": "copy the folder of a saved experiment into a working directory, then open it with `nnictl view ID"
    " --experiment_dir DIR` or `nnictl resume ID --experiment_dir DIR`",
}


def _unsupported(name: str, sentence: str) -> click.Command:
    @click.command(name, context_settings=_ANYTHING, hidden=True, help=f"Not here: {sentence}.")
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def say(words: tuple[str, ...]) -> None:
        raise click.ClickException(f"{name}: {sentence}")

    return say


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
    *(_unsupported(*one) for one in _INSTEAD.items()),
):
    nnictl.add_command(_command)
    nni_manager.add_command(_command)
for _command in (
    export,
    import_results,
    report,
    prune,
    *(_unsupported(*one) for one in _INSTEAD_OF_EXPERIMENT.items()),
):
    experiment.add_command(_command)
trial.add_command(download)
#: Commands of `nni-manager` only; its `stop` without an experiment ends the daemon.
for _command in (serve, own_daemon.status, own_daemon.stop, runner, stand_in_path, nni_hook, doctor, identity):
    nni_manager.add_command(_command)
