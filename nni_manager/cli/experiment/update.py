"""`nnictl update`: what may change while an experiment is open."""

from __future__ import annotations

import os
from typing import Any

import click

from nni_manager.cli.caller import own_environment
from nni_manager.cli.experiment import given_secrets, selection
from nni_manager.cli.session import Connect, connected, current


@click.group()
def update() -> None:
    """Change an experiment's limits, search space or training services; give its secrets anew."""


@update.command()
@connected
@selection.id_argument
@click.option("--value", "-v", required=True, type=click.IntRange(1, 1000), help="How many trials run at a time.")
def concurrency(connect: Connect, *, id: str | None, value: int) -> None:
    """Change trialConcurrency."""
    _change(connect, id, "trialConcurrency", value)


@update.command()
@connected
@selection.id_argument
@click.option(
    "--value", "-v", required=True, type=click.IntRange(1, 999_999_999), help="How many trials are made in all."
)
def trialnum(connect: Connect, *, id: str | None, value: int) -> None:
    """Change maxTrialNumber; more trials wake an experiment that is done."""
    _change(connect, id, "maxTrialNumber", value)


@update.command()
@connected
@selection.id_argument
@click.option("--value", "-v", required=True, help="Such as 90s, 30m, 2h or 1d; a plain number is seconds.")
def duration(connect: Connect, *, id: str | None, value: str) -> None:
    """Change maxExperimentDuration."""
    _change(connect, id, "maxExperimentDuration", int(value) if value.isdecimal() else value)


@update.command()
@connected
@selection.id_argument
@click.option("--filename", "-f", required=True, metavar="FILE", help="The new search space, JSON or YAML.")
def searchspace(connect: Connect, *, id: str | None, filename: str) -> None:
    """Change the search space."""
    _change(connect, id, "searchSpace", _read(filename))


@update.command()
@connected
@selection.id_argument
def credentials(connect: Connect, *, id: str | None) -> None:
    """Give the secrets anew that the config refers to: variables of this environment, files of this machine.

    Where the private file of the experiment's folder is missing, this environment is kept anew, too.
    """
    client = connect()
    id_ = selection.choose(client, id)
    references = client.experiment(id_)["references"]
    environment = None if current().is_remote else own_environment()
    client.renew_secrets(id_, given_secrets.require_secrets(references, os.environ), environment)
    names = ", ".join(references)
    what = f"goes by {names} as they are now" if names else "has an environment again"
    click.echo(f"Experiment {id_} {what}.")


@update.command()
@connected
@selection.id_argument
@click.option(
    "--file",
    "-f",
    "file",
    required=True,
    metavar="FILE",
    help="An experiment file, or its trainingService alone: the services it is to have from now on.",
)
@click.option("--now", is_flag=True, help="Cancel what runs on services that are removed.")
def platform(connect: Connect, *, id: str | None, file: str, now: bool) -> None:
    """Add, change or remove training services; each is meant by its `name`, or by its position."""
    from nni_manager.cli.experiment import changed_services

    sections, references, directory = changed_services.read(file)
    client = connect()
    id_ = selection.choose(client, id)
    secrets = given_secrets.require_secrets(references, os.environ)
    found = client.change(id_, changed_services.body(sections, secrets, directory, now=now))
    click.echo(f"Experiment {id_}: {changed_services.told(found['services'])}.")


def _change(connect: Connect, given: str | None, field: str, value: object) -> None:
    client = connect()
    id_ = selection.choose(client, given)
    found = client.change(id_, {field: value})
    shown = "" if isinstance(value, dict) else f" is {value} now"
    click.echo(f"Experiment {id_}: {field}{shown or ' is changed'}.")
    if reason := found.get("noMoreTrials"):
        click.echo(f"It makes no more trials: {reason}, and {found['trialsMade']} were made.")


def _read(file: str) -> dict[str, Any]:
    """The search space of a file, read as an experiment file's `searchSpaceFile` is. Raises ConfigInvalid."""
    from nni_manager.config.reading.source import Source
    from nni_manager.config.sections.search_space import read_search_space
    from nni_manager.config.sections.section import Section

    source = Source(directory=os.getcwd())
    section = Section({"searchSpaceFile": file}, ("searchSpace", "searchSpaceFile"), (), source)
    search_space = read_search_space(section, source)
    source.check()
    return search_space or {}
