"""`nni-manager nni-hook`: the shell code with which NNI's own launchers start experiments on our daemon."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from nni_manager.domain.errors import NniManagerError
from nni_manager.programs import hook


@click.command("nni-hook")
def nni_hook() -> None:
    """Print shell code with which NNI's own nnictl and Python programs start experiments on this daemon.

    For a shell of the environment that has NNI: eval "$(nni-manager nni-hook)"
    """
    folder = Path(hook.__file__).parent / "path"
    node = folder / "nni_node" / "node"
    if not os.access(node, os.X_OK):
        raise NniManagerError(f"{node} may not be executed: make it so (`chmod +x`), or install nni-manager anew")
    click.echo(f'export PYTHONPATH={shlex.quote(str(folder))}"${{PYTHONPATH:+:$PYTHONPATH}}"')
    click.echo(f"export NNI_NODE_PYTHON={shlex.quote(sys.executable)}")
