"""`nnictl webui`: where an experiment's page is."""

from __future__ import annotations

from typing import Any

import click

from nni_manager.cli import pages, selection
from nni_manager.cli.place import same_place
from nni_manager.cli.session import Connect, connected


@click.group()
def webui() -> None:
    """Say where an experiment's page is."""


@webui.command()
@connected
@selection.id_argument
def url(connect: Connect, *, id: str | None) -> None:
    """Print the address of an experiment's page: its own, and the one on the daemon's."""
    client = connect()
    experiment = client.experiment(selection.choose(client, id))
    found = [page for page in (pages.of_view(experiment), pages.of_service(client, experiment["id"])) if page]
    if not found:
        raise click.ClickException(_no_page(experiment))
    click.echo("\n".join(dict.fromkeys(found)))


def _no_page(experiment: dict[str, Any]) -> str:
    """Both commands give it one at once."""
    verb = "resume" if selection.is_open(experiment) else "view"
    command = f"nnictl {verb} {experiment['id']} --port 8080{same_place()}"
    return (
        f"experiment {experiment['id']} has no page: the daemon listens on no port. Open one with `{command}`, or start"
        " the daemon with `nni-manager serve`"
    )
