"""`nnictl platform`: what trials leave on machines that are not the daemon's."""

from __future__ import annotations

import os

import click

from nni_manager.cli.place import place_options
from nni_manager.domain.errors import ConfigInvalid, Problem


@click.group()
def platform() -> None:
    """Clean up after trials on other machines."""


@platform.command()
@click.option("--config", "-c", required=True, metavar="FILE", help="An experiment file that names the platform.")
@place_options
def clean(config: str, **_: object) -> None:
    """Remove what experiments left on the platform of an experiment file."""
    names = _platforms(config)
    others = [name for name in names if name != "local"]
    if others:
        raise click.ClickException(
            f"{', '.join(others)}: cleaning up there comes with that platform, which this version does not have;"
            " nothing was touched"
        )
    click.echo("There is nothing to clean on local: all of a trial is in its experiment's folder.")


def _platforms(file: str) -> list[str]:
    """Of either dialect; the rest of the file does not matter. Raises ConfigInvalid."""
    from nni_manager.config import yaml_reader
    from nni_manager.config.document import fold
    from nni_manager.config.text_file import read_text

    values = yaml_reader.read(read_text(os.path.expanduser(file)), file).root.value
    fields = {fold(str(key)): value for key, value in values.items()} if isinstance(values, dict) else {}
    services = fields.get("trainingservice", {"platform": fields.get("trainingserviceplatform")})
    sections = services if isinstance(services, list) else [services]
    names = [str(one.get("platform") or "") for one in sections if isinstance(one, dict)]
    if not any(names):
        raise ConfigInvalid([Problem(message="names no platform", field="trainingService", file=file)])
    return [name for name in names if name]
