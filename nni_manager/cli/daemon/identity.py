"""`nni-manager identity`: the name by which a data directory is known on other machines."""

from __future__ import annotations

from pathlib import Path

import click

from nni_manager.cli.caller import data_directory_option
from nni_manager.client.caller import resolve_data_directory
from nni_manager.domain.errors import Conflict, InvalidInput


@click.command()
@click.option("--moved", is_flag=True, help="It was moved here, and no manager runs on it elsewhere any more.")
@click.option("--own", is_flag=True, help="It is a copy: give it a name of its own.")
@data_directory_option
def identity(*, moved: bool, own: bool, data_dir: str | None) -> None:
    """Show the name by which the data directory is known on other machines, or settle which directory has that name.

    Machines take jobs of one data directory under a name. --moved: the directory was moved and keeps its trials there.
    --own: it is a copy, which gets another name and other folders; the trials stay with the original.
    """
    from nni_manager.app import identity as names

    directory = resolve_data_directory(data_dir)
    if moved and own:
        raise InvalidInput("--moved and --own say different things; give one of them")
    if names.known(directory) == names.NOBODY:
        raise InvalidInput(f"{directory} has no name yet: no daemon has used it")
    if moved:
        names.claim(directory)
        click.echo(
            f"{names.known(directory)} is in {directory} from now on; machines are asked again within minutes, or"
        )
        click.echo("at once by `nnictl resume ID`.")
    elif own:
        _separate(directory)
    else:
        click.echo(f"{names.known(directory)} in {directory}")


def _separate(directory: Path) -> None:
    from nni_manager.app import identity as names
    from nni_manager.client.daemon import is_taken

    if is_taken(directory):
        raise Conflict(f"the daemon of {directory} runs; end it first with `nni-manager stop`, trials go on")
    before = names.known(directory)
    click.echo(f"{names.separate(directory)} is the name of {directory} from now on, not {before}.")
