"""`nnictl plan`: where an experiment's first trials would go."""

from __future__ import annotations

from typing import Any

import click

from nni_manager.cli.experiment.create import sent
from nni_manager.cli.output.values import echo_json
from nni_manager.cli.session import Connect, connected


@click.command()
@connected
@click.option("--config", "-c", required=True, metavar="FILE", help="The experiment file, YAML or JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(connect: Connect, *, config: str, as_json: bool) -> None:
    """Say where the first trials of an experiment would go now, and why not elsewhere. Nothing is started."""
    client, experiment = sent(connect, config, "")
    services = client.plan(**experiment)
    if as_json:
        echo_json(services)
    else:
        click.echo("\n".join(line for service in services for line in _lines(service)))


def _lines(service: dict[str, Any]) -> list[str]:
    name, trials, places = service["service"], service["trials"], service["places"]
    if service["trouble"]:
        return [f"{name}: cannot be asked: {service['trouble']}"]
    if places is None:
        return [f"{name}: decides itself where trials run"]
    now = f"{len(places)} of the first {trials} trials would start now" if trials > 1 else _only(places)
    return [
        f"{name}: {now}",
        *(f"  trial {number}: {place}" for number, place in enumerate(places, start=1)),
        *(f"  no more: {why}" for why in service["whyNot"].values()),
    ]


def _only(places: list[str]) -> str:
    return "the first trial would start now" if places else "the first trial would wait"
