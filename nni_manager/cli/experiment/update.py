"""`nnictl update` changes an open experiment; `nnictl stop` closes it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from nni_manager.cli.experiment import selection
from nni_manager.cli.experiment.secrets import allowed_secrets, secret_option
from nni_manager.cli.output import echo, warn
from nni_manager.cli.session import Connect, ManagerClient, connected, current
from nni_manager.client.caller import own_environment
from nni_manager.client.daemon_end import waiting_for_daemon_end
from nni_manager.domain.errors import InvalidInput, NniManagerError, NotFound
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.programs.request import refuse_secrets, require_secrets


@click.group()
def update() -> None:
    """Change limits, services, labels or secrets of an experiment."""


# the bounds of an experiment file, repeated here because its model is slow to import
@update.command()
@connected
@selection.id_argument
@click.option(
    "--value", "-v", required=True, type=click.IntRange(1, 100_000), help="Maximum number of trials at a time."
)
def concurrency(connect: Connect, *, id: str | None, value: int) -> None:
    """Change trialConcurrency."""
    _change(connect, id, "trialConcurrency", value)


@update.command()
@connected
@selection.id_argument
@click.option(
    "--value", "-v", required=True, type=click.IntRange(1, 999_999_999), help="Maximum number of trials in total."
)
def trialnum(connect: Connect, *, id: str | None, value: int) -> None:
    """Change maxTrialNumber. A higher number continues an experiment that is done."""
    _change(connect, id, "maxTrialNumber", value)


@update.command()
@connected
@selection.id_argument
@click.option("--value", "-v", required=True, help="Duration such as 90s, 30m, 2h or 1d, or a number of seconds.")
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
@secret_option
def credentials(connect: Connect, *, id: str | None, secrets: tuple[str, ...]) -> None:
    """Send the current values of the config's secrets.

    They are environment variables and files of this machine.

    If the private file in the experiment's folder is missing, the command also stores this environment again.
    """
    client, id_ = selection.reach(connect, id)
    references = client.experiment(id_)["references"]
    if references and not client.is_here and (refused := {*references} - {*allowed_secrets(secrets)(references)}):
        raise refuse_secrets(sorted(refused), "nothing was changed")
    environment = None if current().is_remote else own_environment()
    client.renew_secrets(id_, require_secrets(references, os.environ), environment)
    names = ", ".join(references)
    what = f"uses the current values of {names}" if names else "has an environment again"
    echo(f"Experiment {id_} {what}.")


@update.command()
@connected
@selection.id_argument
@click.option(
    "--file",
    "-f",
    "file",
    required=True,
    metavar="FILE",
    help="An experiment file, or only its trainingService, with the new services.",
)
@click.option("--now", is_flag=True, help="Cancel trials on removed services.")
def platform(connect: Connect, *, id: str | None, file: str, now: bool) -> None:
    """Add, change or remove training services. A section's `name`, or position, selects the service."""
    sections, references, directory = _read_services(file)
    client, id_ = selection.reach(connect, id)
    secrets = require_secrets(references, os.environ)
    found = client.change(id_, body(sections, secrets, directory, now=now))
    echo(f"Experiment {id_}: {_summary(found['services'])}.")


@update.command()
@connected
@selection.id_argument
@click.option("--name", help="New name.")
@click.option("--tags", metavar="TAG,TAG", help="New tags; empty: none.")
@click.option("--notes", metavar="TEXT", help="New notes.")
@click.option("--archive/--no-archive", "archived", default=None, help="Hide it in the page's list, or show it again.")
def labels(
    connect: Connect, *, id: str | None, name: str | None, tags: str | None, notes: str | None, archived: bool | None
) -> None:
    """Change name, tags or notes of an experiment, or archive it. A stopped one needs its ID."""
    tagged = None if tags is None else [tag for part in tags.split(",") if (tag := part.strip())]
    given = {"experimentName": name, "tags": tagged, "notes": notes, "archived": archived}
    fields = {field: value for field, value in given.items() if value is not None}
    if not fields:
        raise click.UsageError("give --name, --tags, --notes or --archive", click.get_current_context())
    client, id_ = selection.reach(connect, id)
    client.change(id_, fields)
    echo(f"Experiment {id_}: {', '.join(fields)} changed.")


def _change(connect: Connect, given: str | None, field: str, value: object) -> None:
    client, id_ = selection.reach(connect, given)
    found = client.change(id_, {field: value})
    shown = "" if isinstance(value, dict) else f" is now {value}"
    echo(f"Experiment {id_}: {field}{shown or ' was changed'}.")
    if reason := found.get("noMoreTrials"):
        echo(f"It creates no more trials: {reason}, and {found['trialsMade']} were created.")


def _read(file: str) -> dict[str, Any]:
    """The search space in a file, read like `searchSpaceFile` of an experiment file. Raises ConfigInvalid."""
    from nni_manager.config.reading.source import Source
    from nni_manager.config.sections.search_space import read_search_space
    from nni_manager.config.sections.section import Section

    source = Source(directory=os.getcwd())
    section = Section({"searchSpaceFile": file}, ("searchSpace", "searchSpaceFile"), (), source)
    search_space = read_search_space(section, source)
    source.check()
    return search_space or {}


def _read_services(file: str) -> tuple[object, tuple[str, ...], str]:
    """The sections of a file's training services, their secrets' references, and the folder where relative paths start.

    Raises ConfigInvalid, InvalidInput.
    """
    from nni_manager.config.reading import yaml_reader
    from nni_manager.config.reading.source import read_text

    path = Path(os.path.abspath(os.path.expanduser(file)))
    sections: object = yaml_reader.read(read_text(str(path)), file).root.value
    if isinstance(sections, dict) and "platform" not in sections:
        sections = sections.get("trainingService")
        if sections is None:
            raise InvalidInput(
                f"{file}: does not set trainingService; add it, or write only its section, with `platform:`"
            )
    return sections, _references(sections), str(path.parent)


def _references(sections: object) -> tuple[str, ...]:
    """The references to variables and files in the secret fields of sections.

    Sections without a platform are skipped; the manager refuses them.
    """
    from nni_manager.config import secrets
    from nni_manager.platform_kit import registry

    found: list[str] = []
    for section in sections if isinstance(sections, list) else [sections]:
        if isinstance(section, dict) and "platform" in section:
            found += secrets.references([registry.find(str(section["platform"])).config], section)
    return tuple(dict.fromkeys(filter(secrets.is_reference, found)))


def body(sections: object, secrets: Mapping[str, str], directory: str, *, now: bool) -> dict[str, Any]:
    """The request's body, without the folder for a manager on another machine."""
    sent = {"trainingService": sections, "now": now, **({"secrets": dict(secrets)} if secrets else {})}
    return sent if current().is_remote else {**sent, "directory": directory}


def _summary(services: Sequence[Mapping[str, Any]]) -> str:
    """The changed services as a sentence.

    Such as ``its trials run on scripted, scripted-2; local starts no new trials, 3 attempts there continue``.
    """
    kept = [str(one["name"]) for one in services if one["status"] != "removed"]
    sentence = f"its trials run on {', '.join(kept)}"
    for one in services:
        if one["status"] == "removed" and one["openAttempts"]:
            count = one["openAttempts"]
            sentence += (
                f"; {one['name']} starts no new trials, {count} attempt{'s' if count > 1 else ''} there continue"
            )
    return sentence


@click.command()
@connected
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--port", "-p", type=click.IntRange(1, 65535), help="The experiment with this port.")
@click.option("--all", "-a", "everything", is_flag=True, help="Every open experiment.")
def stop(connect: Connect, *, ids: tuple[str, ...], port: int | None, everything: bool) -> None:
    """Stop an experiment's trials and close it. Without ID: the only open one; ab*: all that begin with ab."""
    if everything and (ids or port is not None):
        raise click.UsageError("give either --all, or IDs or a port, not both")
    client = connect()
    with waiting_for_daemon_end(client, of_all=everything):
        before = {one["id"]: one["status"] for one in client.experiments()}
        if everything:
            stopped = client.stop_all()
            echo("\n".join(_over(id_, before) for id_ in stopped) or "No experiment is open.")
            for id_ in stopped:
                _tell_what_may_run(client, id_)
            return
        for id_ in selection.choose_open(client, ids) if port is None else [_at_port(client, port, ids)]:
            client.stop(id_)
            echo(_over(id_, before))
            _tell_what_may_run(client, id_)


def _tell_what_may_run(client: ManagerClient, id: str) -> None:
    """Warn of trials that may still run on unreachable services, if the experiment is readable."""
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
            f"port {port} belongs to experiment {found[0]}, not to {' and '.join(ids)}; give either the port or the ID"
        )
    return str(found[0])


def _over(id: str, before: Mapping[str, str]) -> str:
    """The message about a stopped experiment. `before`: id → status when the command began."""
    if before.get(id) == ExperimentStatus.STOPPED:
        return f"Experiment {id} was already stopped."
    return f"Experiment {id} is {'closed' if before.get(id) == ExperimentStatus.VIEWED else 'stopped'}."
