"""`nnictl create`, `resume` and `stop`: the life of an experiment."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nni_manager.cli import selection
from nni_manager.cli.ending import seen_out
from nni_manager.cli.output import facts
from nni_manager.cli.session import Connect, connected

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

_foreground = click.option("--foreground", "-f", is_flag=True, help="Show progress until the experiment is over.")


def _not_yet(context: click.Context, option: click.Parameter, value: object) -> None:
    if value is not None:
        raise click.UsageError(f"{option.opts[0]}: {_NOT_YET[str(option.name)]}", context)


_VIEWS = (
    "a page and port for each experiment come with a later version; leave it out (`nni-manager serve` has one for all)"
)
_NOT_YET = {
    "port": _VIEWS,
    "url_prefix": _VIEWS,
    "debug": "write `debug: true` into the experiment file instead",
}


@click.command()
@connected
@click.option("--config", "-c", required=True, metavar="FILE", help="The experiment file, YAML or JSON.")
@_foreground
@click.option("--debug", "-d", flag_value="yes", default=None, hidden=True, callback=_not_yet, expose_value=False)
@click.option("--port", "-p", hidden=True, callback=_not_yet, expose_value=False)
@click.option("--url_prefix", "-u", hidden=True, callback=_not_yet, expose_value=False)
def create(connect: Connect, *, config: str, foreground: bool) -> None:
    """Start an experiment; the daemon is started too when none runs."""
    text, directory = _read(config)
    client = connect()
    id_ = client.create(
        text, file=config, directory=directory, environment=_own(os.environ), interpreter=sys.executable
    )
    _go_on(client, id_, "started", foreground=foreground)


@click.command()
@connected
@click.argument("id")
@_foreground
def resume(connect: Connect, *, id: str, foreground: bool) -> None:
    """Open a stopped experiment again, or let one go on that is on hold."""
    client = connect()
    id_ = selection.choose(client, id)
    client.resume(id_)
    _go_on(client, id_, "goes on", foreground=foreground)


@click.command()
@connected
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "-a", "everything", is_flag=True, help="Every open experiment.")
def stop(connect: Connect, *, ids: tuple[str, ...], everything: bool) -> None:
    """End an experiment's trials and close it. Without ID: the only open one; ab*: all that begin with ab."""
    if everything and ids:
        raise click.UsageError("give either IDs or --all, not both")
    client = connect()
    with seen_out(client, of_all=everything):
        if everything:
            stopped = client.stop_all()
            click.echo("\n".join(map(_stopped, stopped)) if stopped else "No experiment is open.")
            return
        for id_ in selection.choose_open(client, ids):
            client.stop(id_)
            click.echo(_stopped(id_))


def _stopped(id: str) -> str:
    return f"Experiment {id} is stopped."


def _go_on(client: ManagerClient, id: str, what: str, *, foreground: bool) -> None:
    hints = {"state": "experiment status", "trials": "trial ls", "end": "stop"}
    commands = {} if foreground else {name: f"nnictl {command} {id}{_place()}" for name, command in hints.items()}
    click.echo(f"Experiment {id} {what}.")
    click.echo(facts({"folder": client.experiment(id)["logPath"], **commands}))
    if foreground:
        from nni_manager.cli import display
        from nni_manager.cli.follow import follow

        sys.exit(follow(client, id, display.for_stream(sys.stdout)))


def _place() -> str:
    """What must be added to a command that means the same daemon."""
    data_dir = click.get_current_context().params.get("data_dir")
    return f" --data-dir {shlex.quote(data_dir)}" if data_dir else ""


def _read(file: str) -> tuple[str, str]:
    """Text and absolute folder. Raises ConfigInvalid."""
    from nni_manager.config.text_file import FileRefused, read_text
    from nni_manager.domain.errors import ConfigInvalid

    path = Path(os.path.abspath(os.path.expanduser(file)))
    try:
        return read_text(str(path)), str(path.parent)
    except FileRefused as error:
        raise ConfigInvalid([error.problem]) from None


def _own(environment: Mapping[str, str]) -> dict[str, str]:
    """What trials get of our environment: not the daemon's settings and token, and nothing that is no UTF-8, for which
    JSON has no word."""
    named = {name: value for name, value in environment.items() if not name.startswith("NNI_MANAGER_")}
    return {name: value for name, value in named.items() if _is_text(name + value)}


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
