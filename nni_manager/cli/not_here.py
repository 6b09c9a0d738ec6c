"""Commands of NNI's `nnictl` that are not supported: each prints what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

import click

_ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}
_NO_ANNOTATIONS = "code annotations are not supported; write searchSpace in the experiment file"
INSTEAD = {
    "jupyter-extension": "there is no JupyterLab extension; open the experiment's page (`nnictl webui url`) in a"
    " browser",
    "hello": "examples are not installed; the folder configs/ of the source has experiments that run unchanged",
    "package": "`nnictl algo` now registers algorithms; see `nnictl algo --help`",
    "ss_gen": _NO_ANNOTATIONS,
    "auto_gen": _NO_ANNOTATIONS,
    "trainingservice": "platforms of other packages need no registration; installing a package with an entry point in"
    " nni_manager.platforms is enough",
}
#: Of `nnictl experiment`.
INSTEAD_OF_EXPERIMENT = {
    "save": "an experiment's folder is complete; stop the experiment and copy the folder that `nnictl experiment"
    " show` names",
    "load": "copy the folder of a saved experiment into a working directory, then open it with `nnictl view ID"
    " --experiment_dir DIR` or `nnictl resume ID --experiment_dir DIR`",
}


def add_to(group: click.Group, instead: Mapping[str, str]) -> None:
    """Add commands that fail with a message each to a group."""
    for name, sentence in instead.items():
        group.add_command(_unsupported(name, sentence))


def _unsupported(name: str, sentence: str) -> click.Command:
    @click.command(name, context_settings=_ANYTHING, hidden=True, help=f"Not supported: {sentence}.")
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def say(words: tuple[str, ...]) -> None:
        raise click.ClickException(f"{name}: {sentence}")

    return say
