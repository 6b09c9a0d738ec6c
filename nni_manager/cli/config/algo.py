"""`nnictl algo`: registers users' tuners and assessors from NNI's meta files."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nni_manager.cli import output
from nni_manager.cli.output import Column, echo, echo_json
from nni_manager.cli.session import data_directory_option
from nni_manager.client.caller import MANAGER_VARIABLE, own_environment, resolve_data_directory
from nni_manager.domain.algorithm import AlgorithmSpec
from nni_manager.domain.errors import ConfigInvalid

if TYPE_CHECKING:
    from nni_manager.config.registered_algorithms import Registered


_HEADERS = ("NAME", "TYPE", "SOURCE", "CLASS", "FOLDER")


@click.group()
def algo() -> None:
    """Register your own tuners and assessors under names.

    Names are stored in the data directory, on the daemon's machine.
    """


@algo.command()
@click.option("--meta_path", "--meta-path", "-m", "meta_path", required=True, metavar="FILE", help="The meta file.")
@data_directory_option
def register(meta_path: str, data_dir: str | None) -> None:
    """Register the algorithms of a meta file (YAML). They replace registered ones of the same name.

    Keys: algoType (tuner, assessor or advisor), builtinName (the name), className (module.Class), and optionally
    classArgs and classArgsValidator. The module is installed or next to the meta file. The command imports the classes
    to check them.
    """
    from nni_manager.config import registered_algorithms

    directory = _directory(data_dir)
    for each in read_meta(meta_path):
        replaced = registered_algorithms.register(directory, each)
        echo(f"{each.kind} {each.name} is {'replaced' if replaced else 'registered'}: {each.class_name}")


@algo.command()
@click.argument("name")
@data_directory_option
def unregister(name: str, data_dir: str | None) -> None:
    """Remove a registered name. Existing experiments are not affected."""
    from nni_manager.config import registered_algorithms

    registered_algorithms.unregister(_directory(data_dir), name)
    echo(f"{name} is not registered any more.")


@algo.command()
@click.argument("name")
@data_directory_option
def show(name: str, data_dir: str | None) -> None:
    """Print an algorithm as JSON."""
    from nni_manager.config import registered_algorithms

    for each in registered_algorithms.read_all(_directory(data_dir)):
        if each.name.lower() == name.lower():
            echo(as_json(each))
            return
    for entry in _built_in():
        if name.lower() in (known.lower() for known in (entry["name"], *entry["aliases"])):
            echo_json(entry)
            return
    raise click.ClickException(f"cannot find algorithm {name}; `nnictl algo list` shows all")


@algo.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@data_directory_option
def list_algorithms(as_json: bool, data_dir: str | None) -> None:
    """List built-in and registered algorithms."""
    from nni_manager.config import registered_algorithms

    own = [
        {
            "name": one.name,
            "type": one.kind,
            "source": "user",
            "className": one.class_name,
            "codeDirectory": one.code_directory,
        }
        for one in registered_algorithms.read_all(_directory(data_dir))
    ]
    found: list[dict[str, Any]] = [*_built_in(), *own]
    if as_json:
        echo_json(found)
    else:
        names = ("name", "type", "source", "className", "codeDirectory")
        columns = [Column(header=header) for header in _HEADERS]
        rows = [tuple(str(one.get(name, "")) for name in names) for one in found]
        echo(output.layout(columns, rows, output.terminal_width()).text)


def _alias(command: click.Command, name: str) -> None:
    short = copy.copy(command)
    short.hidden = True
    algo.add_command(short, name)


_alias(register, "reg")
_alias(unregister, "unreg")


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
            f"{MANAGER_VARIABLE} names a manager on another machine, where its algorithms are registered. Run this"
            " command there, or give --data-dir"
        )
    return resolve_data_directory(data_dir)


_KINDS = {"tuner": "tuner", "advisor": "tuner", "assessor": "assessor"}


def read_meta(file: str) -> list[Registered]:
    """The algorithms of a meta file: a single one, or the list `algorithms`. Raises ConfigInvalid, InvalidInput."""
    path = Path(os.path.abspath(os.path.expanduser(file)))
    meta = _load(str(path), file)
    entries = meta.get("algorithms") or [meta]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigInvalid.of("must be a list of mappings", field="algorithms", file=file)
    return [_described(entry, path.parent, file) for entry in entries]


def _load(path: str, file: str) -> dict[str, Any]:
    from nni_manager.config.reading import yaml_reader
    from nni_manager.config.reading.source import read_text

    meta = yaml_reader.read(read_text(path), file).root.value
    if not isinstance(meta, dict):
        raise ConfigInvalid.of("must be a mapping with algoType, builtinName and className", field="", file=file)
    return meta


def _described(entry: dict[str, Any], folder: Path, file: str) -> Registered:
    from nni_manager.config.registered_algorithms import Registered

    for name in ("algoType", "builtinName", "className"):
        if not isinstance(entry.get(name), str) or not entry[name].strip():
            raise ConfigInvalid.of(
                "is required, as are algoType, builtinName and className; set it to text", field=name, file=file
            )
    if entry["algoType"] not in _KINDS:
        raise ConfigInvalid.of(f"must be one of {', '.join(_KINDS)}", field="algoType", file=file)
    class_args, validator = entry.get("classArgs") or {}, entry.get("classArgsValidator") or ""
    if not isinstance(class_args, dict) or not isinstance(validator, str):
        raise ConfigInvalid.of("must be a mapping, and classArgsValidator a class", field="classArgs", file=file)
    classes = [name for name in (entry["className"], validator) if name]
    return Registered(
        name=entry["builtinName"].strip(),
        kind=_KINDS[entry["algoType"]],
        class_name=entry["className"],
        code_directory=_folder_of(_KINDS[entry["algoType"]], classes, folder, file),
        class_args=class_args,
        accepts_class_args=entry.get("acceptClassArgs", True) is not False,
        validator=validator,
    )


def _folder_of(kind: str, classes: list[str], folder: Path, file: str) -> str:
    """The folder of an algorithm's module: the meta file's folder if the module is there, empty if it is installed.

    Raises ConfigInvalid.
    """
    for name in classes:
        if "." not in name.strip("."):
            raise ConfigInvalid.of(
                f"{name!r} must name a module and a class in it, such as my_tuner.MyTuner", field="className", file=file
            )
    top = classes[0].partition(".")[0]
    beside = (folder / f"{top}.py").is_file() or (folder / top).is_dir()
    directory = str(folder) if beside else ""
    if complaint := _complaint(kind, classes, directory):
        advice = "" if beside else "; install it there, or put it next to the meta file"
        raise ConfigInvalid.of(f"{complaint}{advice}", field="className", file=file)
    return directory


def _complaint(kind: str, classes: list[str], directory: str) -> str:
    """Why the caller's default Python cannot import the classes; empty if it can."""
    import asyncio

    from nni_manager.config import user_classes

    labels = dict(zip((kind, "validator"), classes, strict=False))
    asked = {label: AlgorithmSpec(class_name=name, code_directory=directory) for label, name in labels.items()}
    environment = own_environment()
    python = user_classes.python("", environment)
    refusals = asyncio.run(user_classes.find(asked, python, environment)).refusals
    return "; ".join(user_classes.sentence(asked[label], python, refusal) for label, refusal in refusals.items())


def as_json(registered: Registered) -> str:
    """A registered algorithm as JSON, with the keys of NNI's meta file; keys without a value are omitted."""
    meta = {
        "algoType": registered.kind,
        "builtinName": registered.name,
        "className": registered.class_name,
        "codeDirectory": registered.code_directory,
        "classArgs": dict(registered.class_args),
        "acceptClassArgs": registered.accepts_class_args,
        "classArgsValidator": registered.validator,
        "source": "user",
    }
    return json.dumps({name: value for name, value in meta.items() if value not in ("", {})}, indent=2)
