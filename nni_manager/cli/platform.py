"""`nnictl platform`: cleans up what experiments leave on their training services."""

from __future__ import annotations

import os
from contextlib import suppress

import click

from nni_manager.cli.session import Connect, connected
from nni_manager.domain.errors import ConfigInvalid, InvalidInput, Problem


@click.group()
def platform() -> None:
    """Clean up after experiments."""


@platform.command()
@connected
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--config", "-c", metavar="FILE", help="The platforms of an experiment file.")
def clean(connect: Connect, *, names: tuple[str, ...], config: str | None) -> None:
    """End the jobs that stopped or deleted experiments left, on all platforms or those named."""
    chosen = [*names, *(_platforms(config) if config is not None else ())]
    cleaned = connect().clean(chosen)
    for one in cleaned:
        what = "jobs" if one["jobs"] is None else "1 job" if one["jobs"] == 1 else f"{one['jobs']} jobs"
        place = f"of experiment {one['experiment']} on {one['service']}"
        click.echo(f"{what} {place}: {one['trouble'] or 'ended'}.")
    if not cleaned:
        click.echo("There is nothing to clean: no closed experiment has left a job.")
    if any(one["trouble"] for one in cleaned):
        raise click.ClickException("some could not be ended now; they stay noted")


def _platforms(file: str) -> list[str]:
    """The names of the platforms in a file of either format; the rest of it does not matter. Raises ConfigInvalid."""
    from nni_manager.config import yaml_reader
    from nni_manager.config.document import fold
    from nni_manager.config.source import read_text

    values = yaml_reader.read(read_text(os.path.expanduser(file)), file).root.value
    fields = {fold(str(key)): value for key, value in values.items()} if isinstance(values, dict) else {}
    services = fields.get("trainingservice", {"platform": fields.get("trainingserviceplatform")})
    sections = services if isinstance(services, list) else [services]
    names = [str(one.get("platform") or "") for one in sections if isinstance(one, dict)]
    if not any(names):
        raise ConfigInvalid([Problem(message="names no platform", field="trainingService", file=file)])
    return [_known(name) for name in names if name]


def _known(name: str) -> str:
    """The present name of a platform, where an older one is given; a name that is not known stays."""
    from nni_manager.platform_kit import registry

    with suppress(InvalidInput):
        return registry.find(name).name
    return name
