"""`nni-manager status` and `nni-manager stop`: the daemon itself."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

import click

from nni_manager.cli.experiment import selection
from nni_manager.cli.experiment.listing import json_option
from nni_manager.cli.experiment.stop import stop as stop_experiments
from nni_manager.cli.output import terminal
from nni_manager.cli.output.values import echo_json, facts
from nni_manager.cli.session import current, daemon_options
from nni_manager.client.chosen_daemon import connect
from nni_manager.client.formats import moment

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

#: Seconds to wait for the daemon's end.
_PATIENCE_S = 10


@click.command()
@daemon_options
@json_option
def status(*, as_json: bool, **_: object) -> None:
    """Say whether a daemon runs, since when and where it listens. Starts none; exit code 1 where none runs."""
    client = _running()
    if client is None:
        raise click.ClickException(f"{_none()}; `nni-manager serve`, `nnictl create` or `nnictl resume` starts one")
    daemon, found = client.daemon(), client.experiments()
    if as_json:
        echo_json(daemon)
        return
    at_work = [one["id"] for one in found if selection.is_open(one)]
    click.echo(
        facts(
            {
                "daemon": f"process {daemon['pid']}, version {daemon['version']}",
                "since": moment(daemon["startedMs"]),
                "data": daemon["dataDirectory"],
                **{one["kind"]: one["address"] for one in daemon["listeners"]},
                "experiments": f"{len(found)}, open: {selection.listing(at_work) or 'none'}",
                "ends": "with the last open experiment" if daemon["endsByItself"] else "when it is told to",
            },
            terminal.width(),
        )
    )


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--port", "-p", type=click.IntRange(1, 65535), help="The experiment that has this port of its own.")
@click.option("--all", "-a", "everything", is_flag=True, help="Every open experiment.")
@daemon_options
def stop(*, ids: tuple[str, ...], port: int | None, everything: bool, **_: object) -> None:
    """End the daemon; trials go on, and the next daemon takes them up.

    With IDs, a port or --all: end these experiments' trials and close them, as `nnictl stop` does.
    """
    if ids or port is not None or everything:
        context = click.get_current_context()
        context.invoke(stop_experiments, **context.params)
        return
    client = _running()
    if client is None:
        click.echo(f"{_none()}.")
        return
    _end(client)


def _end(client: ManagerClient) -> None:
    daemon = client.daemon()
    at_work = [one["id"] for one in client.experiments() if selection.is_open(one)]
    process = _opened(daemon["pid"]) if client.is_here else None
    client.stop_daemon()
    has_ended = process is None or bool(select.select([process], [], [], _PATIENCE_S)[0])
    if process is not None:
        os.close(process)
    click.echo(f"The daemon, process {daemon['pid']}, {'has ended' if has_ended else 'is asked to end'}.")
    if at_work:
        click.echo(
            f"Open experiments, whose trials go on: {selection.listing(at_work)}; the next daemon takes them up."
        )


def _opened(pid: int) -> int | None:
    """A descriptor of the daemon's process; None in another container, where the process has another id."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _running() -> ManagerClient | None:
    """A client of the chosen daemon; None: none runs here. Raises NniManagerError if it runs and cannot be reached."""
    from nni_manager.client.daemon import find_running
    from nni_manager.client.manager_client import ManagerClient

    place = current()
    if place.is_remote:
        return connect(place)
    address = find_running(place.data_directory)
    return ManagerClient(address) if address is not None else None


def _none() -> str:
    return f"no daemon runs for {current().data_directory}"
