"""`nnictl webui`: where an experiment's page is."""

from __future__ import annotations

from typing import Any

import click

from nni_manager.cli import place, selection
from nni_manager.cli.session import Connect, connected

#: A door on all interfaces says so, and is no address to open.
_ANY = ("0.0.0.0", "::")  # noqa: S104 (what is looked for)


@click.group()
def webui() -> None:
    """Say where an experiment's page is."""


@webui.command()
@connected
@selection.id_argument
def url(connect: Connect, *, id: str | None) -> None:
    """Print the address of an experiment's page: its own, and the one on the daemon's."""
    client = connect()
    id_ = selection.choose(client, id)
    pages = [*_view(client.experiment(id_)), *_service(client.daemon(), id_)]
    if not pages:
        raise click.ClickException(
            f"experiment {id_} has no page: the daemon listens on no port. Open one with `nnictl resume {id_} --port"
            " 8080` once it is stopped, or start the daemon with `nni-manager serve`"
        )
    click.echo("\n".join(dict.fromkeys(pages)))


def _view(experiment: dict[str, Any]) -> list[str]:
    view = experiment.get("view")
    return [_reachable(view["url"])] if view and view.get("url") else []


def _service(daemon: dict[str, Any], id: str) -> list[str]:
    """As the command itself reaches the daemon, if by TCP; else by what the daemon says of its doors."""
    here = place.current()
    if here.is_elsewhere:
        return [f"{here.url.rstrip('/')}/experiments/{id}"]
    return [
        f"{_reachable(door['address'])}/experiments/{id}"
        for door in daemon.get("doors", ())
        if door["kind"] == "service"
    ]


def _reachable(address: str) -> str:
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    if parts.hostname not in _ANY:
        return address
    return parts._replace(netloc=f"{socket.gethostname()}:{parts.port}").geturl()
