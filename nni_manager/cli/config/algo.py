"""`nnictl algo`: registers users' tuners and assessors under names."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nni_manager.cli.caller import data_directory_option
from nni_manager.cli.output import table, terminal
from nni_manager.cli.output.table import Column
from nni_manager.cli.output.values import echo_json
from nni_manager.client.caller import MANAGER_VARIABLE, resolve_data_directory

if TYPE_CHECKING:
    from nni_manager.config.registered_algorithms import Registered

_HEADERS = ("NAME", "TYPE", "SOURCE", "CLASS", "FOLDER")


@click.group()
def algo() -> None:
    """Give tuners and assessors of your own a name that configs can use.

    Names are kept in the data directory, on the daemon's machine.
    """


@algo.command()
@click.option("--meta_path", "--meta-path", "-m", "meta_path", required=True, metavar="FILE", help="The meta file.")
@data_directory_option
def register(meta_path: str, data_dir: str | None) -> None:
    """Register the algorithms that a meta file (YAML) describes; they replace those of the same name.

    Its keys: algoType (tuner, assessor or advisor), builtinName (the name), className (module.Class), and if wanted
    classArgs and classArgsValidator. The module is installed, or stands beside the meta file. The classes are imported
    to see that they are there.
    """
    from nni_manager.cli.config import algo_meta
    from nni_manager.config import registered_algorithms

    directory = _directory(data_dir)
    for each in algo_meta.read(meta_path):
        replaced = registered_algorithms.register(directory, each)
        click.echo(f"{each.kind} {each.name} is {'registered anew' if replaced else 'registered'}: {each.class_name}")


@algo.command()
@click.argument("name")
@data_directory_option
def unregister(name: str, data_dir: str | None) -> None:
    """Remove a registered name; experiments that were made with it go on."""
    from nni_manager.config import registered_algorithms

    registered_algorithms.unregister(_directory(data_dir), name)
    click.echo(f"{name} is not registered any more.")


@algo.command()
@click.argument("name")
@data_directory_option
def show(name: str, data_dir: str | None) -> None:
    """Print what is known of an algorithm, as JSON."""
    from nni_manager.cli.config.algo_meta import as_json

    for each in _registered(_directory(data_dir)):
        if each.name.lower() == name.lower():
            click.echo(as_json(each))
            return
    for entry in _built_in():
        if name.lower() in (known.lower() for known in (entry["name"], *entry["aliases"])):
            echo_json(entry)
            return
    raise click.ClickException(f"there is no algorithm {name}; `nnictl algo list` shows which there are")


@algo.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@data_directory_option
def list_algorithms(as_json: bool, data_dir: str | None) -> None:
    """List built-in and registered algorithms."""
    own = [
        {
            "name": one.name,
            "type": one.kind,
            "source": "user",
            "className": one.class_name,
            "codeDirectory": one.code_directory,
        }
        for one in _registered(_directory(data_dir))
    ]
    found: list[dict[str, Any]] = [*_built_in(), *own]
    if as_json:
        echo_json(found)
    else:
        names = ("name", "type", "source", "className", "codeDirectory")
        columns = [Column(header=header) for header in _HEADERS]
        rows = [tuple(str(one.get(name, "")) for name in names) for one in found]
        click.echo(table.layout(columns, rows, terminal.width()).text)


def _alias(command: click.Command, name: str) -> None:
    """Adds a hidden command under NNI's short name of `command`."""
    short = copy.copy(command)
    short.hidden = True
    algo.add_command(short, name)


_alias(register, "reg")
_alias(unregister, "unreg")


def _registered(directory: Path) -> tuple[Registered, ...]:
    from nni_manager.config.registered_algorithms import read_all

    return read_all(directory)


def _built_in() -> Iterator[dict[str, Any]]:
    from nni_manager.config.registered_algorithms import FAMILIES

    for family in FAMILIES.values():
        for one in family.built_in:
            yield {
                "name": one.name,
                "type": family.kind,
                "source": "built-in",
                "className": one.location.replace(":", "."),
                "aliases": list(one.aliases),
            }


def _directory(data_dir: str | None) -> Path:
    if data_dir is None and os.environ.get(MANAGER_VARIABLE):
        raise click.ClickException(
            f"{MANAGER_VARIABLE} names a manager elsewhere, and algorithms are registered on its machine: run this"
            " there, or give --data-dir"
        )
    return resolve_data_directory(data_dir)
