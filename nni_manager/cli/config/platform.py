"""`nnictl platform`: trusts machines, cleans up after experiments."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nni_manager.cli.experiment.create import sent
from nni_manager.cli.output import confirmed, echo
from nni_manager.cli.session import Connect, connected, data_directory_option
from nni_manager.client.caller import resolve_data_directory
from nni_manager.domain.errors import ConfigInvalid, InvalidInput
from nni_manager.domain.formats import duration

if TYPE_CHECKING:
    from nni_manager.app.host_keys import HostKey


@click.group()
def platform() -> None:
    """Trust machines, clean up after experiments."""


@platform.command()
@connected
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--config", "-c", metavar="FILE", help="The platforms of an experiment file.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask about what no data directory here knows.")
def clean(connect: Connect, *, names: tuple[str, ...], config: str | None, yes: bool) -> None:
    """End the jobs that stopped or deleted experiments left. All platforms are meant, or those named.

    With --config, a cluster is also asked what its namespace has of experiments that are not at work here; their
    folders may be lost. That is listed, and removed after a yes, as another manager may be at work with it.
    """
    in_file = _platforms(config) if config is not None else []
    chosen = [*names, *in_file]
    is_left = _end_noted(connect, chosen)
    if config is not None and any(map(_finds_left, in_file)):
        is_left = _clean_left(connect, config, yes=yes) or is_left
    if not is_left:
        echo("There is nothing to clean: no closed experiment has left a job.")


def _end_noted(connect: Connect, chosen: list[str]) -> bool:
    """Ends the recorded leftover jobs; returns whether there were any. Raises ClickException when some cannot be
    ended."""
    cleaned = connect().clean(chosen)
    for one in cleaned:
        what = "jobs" if one["jobs"] is None else "1 job" if one["jobs"] == 1 else f"{one['jobs']} jobs"
        place = f"of experiment {one['experiment']} on {one['service']}"
        echo(f"{what} {place}: {one['trouble'] or 'ended'}.")
    if any(one["trouble"] for one in cleaned):
        raise click.ClickException("some could not be ended now; they stay noted")
    return bool(cleaned)


def _finds_left(name: str) -> bool:
    from nni_manager.platform_kit import registry

    with suppress(InvalidInput):
        return registry.find(name).finds_left
    return False


@platform.command()
@click.option(
    "--config", "-c", type=click.Path(path_type=Path), metavar="FILE", required=True, help="An experiment file."
)
@click.option(
    "--yes-these", metavar="SHA256:…", multiple=True, help="For scripts: trust these fingerprints and no other."
)
@data_directory_option
def trust(*, config: Path, yes_these: tuple[str, ...], data_dir: str | None) -> None:
    """Show new host keys of a config's machines, and trust them. Those that you agree to are written into
    ~/.ssh/known_hosts.

    To be run as the daemon's user on its machine. Compare with `ssh-keygen -lf` on the machine: a different key means
    that the connection is intercepted. A key that has changed is never written.
    """
    from nni_manager.app.host_keys import trust as judged

    data_directory = resolve_data_directory(data_dir)
    sentences = list(_printed(judged(config, data_directory, os.environ, partial(_agrees, these=yes_these))))
    refused = sum(": not trusted: " in sentence for sentence in sentences)
    if refused:
        raise click.ClickException(f"{refused} of {len(sentences)} machines are not trusted")


def _agrees(host: str, key: HostKey, *, these: tuple[str, ...]) -> bool:
    """Whether a key is to be trusted: it is among `these`, or else confirmed at the terminal."""
    if these:
        return key.fingerprint in these
    echo(f"{host}: {key.place} shows {key.text.split()[0]} {key.fingerprint}")
    return click.confirm("Is this its key?", default=False)


def _printed(sentences: Iterator[str]) -> Iterator[str]:
    for sentence in sentences:
        echo(sentence)
        yield sentence


def _platforms(file: str) -> list[str]:
    """The names of the platforms in a file of either format, which may be invalid otherwise. Raises ConfigInvalid."""
    from nni_manager.config.reading import yaml_reader
    from nni_manager.config.reading.document import fold
    from nni_manager.config.reading.source import read_text

    values = yaml_reader.read(read_text(os.path.expanduser(file)), file).root.value
    fields = {fold(str(key)): value for key, value in values.items()} if isinstance(values, dict) else {}
    services = fields.get("trainingservice", {"platform": fields.get("trainingserviceplatform")})
    sections = services if isinstance(services, list) else [services]
    names = [str(one.get("platform") or "") for one in sections if isinstance(one, dict)]
    if not any(names):
        raise ConfigInvalid.of("names no platform", field="trainingService", file=file)
    return [_known(name) for name in names if name]


def _known(name: str) -> str:
    """The current name of a platform for an older one; an unknown name is returned as it is."""
    from nni_manager.platform_kit import registry

    with suppress(InvalidInput):
        return registry.find(name).name
    return name


_WHOSE = {
    "this": "of this manager",
    "another": "of another manager, which may be at work with it",
    "unknown": "of an unknown manager, which may be at work with it",
}


def _clean_left(connect: Connect, config: str, *, yes: bool) -> bool:
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
            echo(f"experiment {name}: {_counted(objects)} removed.")
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
        echo(f"experiment {name}, {_WHOSE[objects[0]['manager']]}: {_counted(objects)}, {_age(objects)}")
        for one in objects:
            echo(f"  {one['what']}")
        if stays := {one["stays"] for one in objects} - {""}:
            echo(f"  stays: {'; '.join(sorted(stays))}")
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
    """The age of the youngest and of the oldest, ``10 min 0 s to 3 d 4 h old``."""
    ages = sorted(now_s() * 1000 - one["createdMs"] for one in objects if one["createdMs"] is not None)
    if not ages:
        return "of unknown age"
    youngest, oldest = duration(ages[0]), duration(ages[-1])
    return f"{youngest} old" if youngest == oldest else f"{youngest} to {oldest} old"


def _troubles(services: list[dict[str, Any]]) -> Iterator[str]:
    return (f"{one['service']}: {one['trouble']}" for one in services if one["trouble"])
