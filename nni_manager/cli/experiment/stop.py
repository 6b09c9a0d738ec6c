"""`nnictl stop`; waits for the daemon if it ends with its last experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from nni_manager.cli.experiment import selection
from nni_manager.cli.output import warn
from nni_manager.cli.session import Connect, connected
from nni_manager.client.daemon_end import waiting_for_daemon_end
from nni_manager.domain.errors import InvalidInput, NniManagerError, NotFound
from nni_manager.domain.experiment import ExperimentStatus

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient


@click.command()
@connected
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--port", "-p", type=click.IntRange(1, 65535), help="The experiment that has this port of its own.")
@click.option("--all", "-a", "everything", is_flag=True, help="Every open experiment.")
def stop(connect: Connect, *, ids: tuple[str, ...], port: int | None, everything: bool) -> None:
    """End an experiment's trials and close it. Without ID: the only open one; ab*: all that begin with ab."""
    if everything and (ids or port is not None):
        raise click.UsageError("give either --all, or IDs or a port, not both")
    client = connect()
    with waiting_for_daemon_end(client, of_all=everything):
        before = {one["id"]: one["status"] for one in client.experiments()}
        if everything:
            stopped = client.stop_all()
            told = "\n".join(_over(id_, before) for id_ in stopped)
            click.echo(told or "No experiment is open.")
            for id_ in stopped:
                _tell_what_may_run(client, id_)
            return
        for id_ in selection.choose_open(client, ids) if port is None else [_at_port(client, port, ids)]:
            client.stop(id_)
            click.echo(_over(id_, before))
            _tell_what_may_run(client, id_)


def _tell_what_may_run(client: ManagerClient, id: str) -> None:
    """Warns of trials that may still run, on services that could not be reached; not if the experiment cannot be
    read."""
    with suppress(NniManagerError):
        found = client.experiment(id)["warnings"]
        warn(one["message"] for one in found if one["code"] == "MAY_STILL_RUN")


def _at_port(client: ManagerClient, port: int, ids: Sequence[str]) -> str:
    """The experiment with an endpoint at the port. Raises NotFound, or InvalidInput if `ids` are other experiments."""
    found = [one["id"] for one in client.experiments() if (one["endpoint"] or {}).get("port") == port]
    if not found:
        raise NotFound(f"no experiment has port {port}; `nnictl experiment list` shows every open one")
    if ids and selection.choose_open(client, ids) != found:
        raise InvalidInput(
            f"port {port} is experiment {found[0]}'s, and not {' and '.join(ids)}'s; give one of the two"
        )
    return str(found[0])


def _over(id: str, before: Mapping[str, str]) -> str:
    """The sentence about an experiment that was stopped. `before`: id → status, when the command began."""
    if before.get(id) == ExperimentStatus.STOPPED:
        return f"Experiment {id} was stopped already."
    return f"Experiment {id} is {'not viewed any more' if before.get(id) == ExperimentStatus.VIEWED else 'stopped'}."
