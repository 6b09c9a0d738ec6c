"""Objects that experiments left on a config's training services and no data directory here knows. They are listed and
removed after confirmation, since another manager may be using them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from nni_manager.cli.experiment.create import sent
from nni_manager.cli.output.terminal import confirmed
from nni_manager.cli.session import Connect
from nni_manager.client.formats import duration

_WHOSE = {
    "this": "of this manager",
    "another": "of another manager, which may be at work with it",
    "unknown": "of an unknown manager, which may be at work with it",
}


def clean(connect: Connect, config: str, *, yes: bool) -> bool:
    """Lists the objects left on the services of an experiment file, asks about each experiment unless `yes`, and
    removes those that may be removed. Returns whether there were any. Raises ClickException when some were kept or
    could not be removed."""
    client, experiment = sent(connect, config, "")

    def ask(remove: list[str] | None = None) -> list[dict[str, Any]]:
        return client.left(remove=remove, **experiment)

    services = ask()
    agreed, kept = _chosen(services, yes=yes)
    troubles = [*_troubles(services)]
    if agreed:
        removed = ask(sorted(agreed))
        for name, objects in _by_experiment(removed).items():
            click.echo(f"experiment {name}: {_counted(objects)} removed.")
        troubles += _troubles(removed)
    if kept:
        troubles.append(f"what {', '.join(sorted(kept))} left was kept; --yes removes it without a question")
    if troubles:
        raise click.ClickException("; ".join(troubles))
    return any(service["objects"] for service in services)


def _chosen(services: list[dict[str, Any]], *, yes: bool) -> tuple[set[str], set[str]]:
    """Two sets of experiments: their objects are to be removed; or could be, and are kept."""
    agreed: set[str] = set()
    kept: set[str] = set()
    for name, objects in _by_experiment(services).items():
        click.echo(f"experiment {name}, {_WHOSE[objects[0]['manager']]}: {_counted(objects)}, {_age(objects)}")
        for one in objects:
            click.echo(f"  {one['what']}")
        if stays := {one["stays"] for one in objects} - {""}:
            click.echo(f"  stays: {'; '.join(sorted(stays))}")
        else:
            (agreed if yes or confirmed("Remove this?") else kept).add(name)
    return agreed, kept


def _by_experiment(services: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for service in services:
        for one in service["objects"]:
            if one not in found[one["experiment"]]:  # two services may share a namespace
                found[one["experiment"]].append(one)
    return found


def _counted(objects: list[dict[str, Any]]) -> str:
    """The number of each kind, ``2 TFJob, 1 Secret``."""
    kinds = [one["what"].partition(" ")[0] for one in objects]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def _age(objects: list[dict[str, Any]], now_s: Callable[[], float] = time.time) -> str:
    """The age of the youngest and of the oldest, ``0:10:00 to 3 d 04:10:00 old``."""
    ages = sorted(now_s() - one["createdMs"] / 1000 for one in objects if one["createdMs"] is not None)
    if not ages:
        return "of unknown age"
    youngest, oldest = duration(ages[0]), duration(ages[-1])
    return f"{youngest} old" if youngest == oldest else f"{youngest} to {oldest} old"


def _troubles(services: list[dict[str, Any]]) -> Iterator[str]:
    return (f"{one['service']}: {one['trouble']}" for one in services if one["trouble"])
