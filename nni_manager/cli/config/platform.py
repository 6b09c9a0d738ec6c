"""`nnictl platform`: trusts machines, cleans up after experiments."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
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
@click.option("--yes", "-y", is_flag=True, help="Do not ask about objects that no data directory here knows.")
def clean(connect: Connect, *, names: tuple[str, ...], config: str | None, yes: bool) -> None:
    """End leftover jobs of closed experiments, on all or named platforms.

    With --config, the command also lists objects in the cluster's namespace whose experiments are not open here; their
    folders may be lost. It removes them after a confirmation, because another manager may use them.
    """
    in_file = _platforms(config) if config is not None else []
    chosen = [*names, *in_file]
    is_left = _end_noted(connect, chosen)
    if config is not None and any(map(_finds_left, in_file)):
        is_left = _clean_left(connect, config, yes=yes) or is_left
    if not is_left:
        echo("There is nothing to clean: closed experiments left no jobs.")


def _end_noted(connect: Connect, chosen: list[str]) -> bool:
    """End the recorded leftover jobs; return whether there were any.

    Raises ClickException if some cannot be ended.
    """
    cleaned = connect().clean(chosen)
    for one in cleaned:
        what = {None: "jobs", 0: "objects or files", 1: "1 job"}.get(one["jobs"], f"{one['jobs']} jobs")
        place = f"of experiment {one['experiment']} on {one['service']}"
        echo(f"{what} {place}: {one['trouble'] or 'ended'}.")
    if any(one["trouble"] for one in cleaned):
        raise click.ClickException("some jobs could not be ended now; run the command again later")
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
    """Show new host keys of a config's machines. The command adds confirmed ones to ~/.ssh/known_hosts.

    Run it as the daemon's user on the daemon's machine. Compare each key with the output of `ssh-keygen -lf` on the
    machine: a different key means that the connection is intercepted. Changed keys are never added.
    """
    from nni_manager.app.host_keys import trust as judged

    data_directory = resolve_data_directory(data_dir)
    sentences = list(_printed(judged(config, data_directory, os.environ, partial(_agrees, these=yes_these))))
    refused = sum(": not trusted: " in sentence for sentence in sentences)
    if refused:
        raise click.ClickException(f"{refused} of {len(sentences)} machines are not trusted")


def _agrees(host: str, key: HostKey, *, these: tuple[str, ...]) -> bool:
    """Whether a key is trusted: it is in `these`, or confirmed at the terminal."""
    if these:
        return key.fingerprint in these
    echo(f"{host}: {key.place} shows {key.text.split()[0]} {key.fingerprint}")
    return click.confirm("Is this its key?", default=False)


def _printed(sentences: Iterator[str]) -> Iterator[str]:
    for sentence in sentences:
        echo(sentence)
        yield sentence


def _platforms(file: str) -> list[str]:
    """The platforms in a file of either format; other errors in it are ignored. Raises ConfigInvalid."""
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
    """The current name of a platform for an older one; other names are unchanged."""
    from nni_manager.platform_kit import registry

    with suppress(InvalidInput):
        return registry.find(name).name
    return name


_WHOSE = {
    "this": "of this manager",
    "another": "of another manager, which may be running it",
    "unknown": "of an unknown manager, which may be running it",
}


def _clean_left(connect: Connect, config: str, *, yes: bool) -> bool:
    """Remove leftover objects on the services of an experiment file; return whether there were any.

    Lists them, and asks about each experiment unless `yes`. Raises ClickException if some were kept or could not be
    removed.
    """
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
        troubles.append(f"objects of {', '.join(sorted(kept))} were kept; use --yes to remove them without a question")
    if troubles:
        raise click.ClickException("; ".join(troubles))
    return any(service["objects"] for service in services)


def _chosen(services: list[dict[str, Any]], *, yes: bool) -> tuple[set[str], set[str]]:
    """Two sets of experiments: those whose objects are to be removed, and those whose objects are kept."""
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
    """The number of each kind, ``2 TFJobs, 1 Secret``."""
    kinds = Counter(one["what"].partition(" ")[0] for one in objects)
    return ", ".join(f"{number} {kind}{'s' if number > 1 else ''}" for kind, number in kinds.items())


def _age(objects: list[dict[str, Any]], now_s: Callable[[], float] = time.time) -> str:
    """The age of the youngest and of the oldest, ``10 min 0 s to 3 d 4 h old``."""
    ages = sorted(now_s() * 1000 - one["createdMs"] for one in objects if one["createdMs"] is not None)
    if not ages:
        return "of unknown age"
    youngest, oldest = duration(ages[0]), duration(ages[-1])
    return f"{youngest} old" if youngest == oldest else f"{youngest} to {oldest} old"


def _troubles(services: list[dict[str, Any]]) -> Iterator[str]:
    return (f"{one['service']}: {one['trouble']}" for one in services if one["trouble"])
