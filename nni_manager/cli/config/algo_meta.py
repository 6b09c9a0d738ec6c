"""Reads NNI's meta file of algorithms; checks that the classes can be imported."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nni_manager.client.caller import own_environment
from nni_manager.domain.errors import ConfigInvalid, Problem
from nni_manager.domain.experiment import AlgorithmSpec

if TYPE_CHECKING:
    from nni_manager.config.registered_algorithms import Registered

_KINDS = {"tuner": "tuner", "advisor": "tuner", "assessor": "assessor"}


def read(file: str) -> list[Registered]:
    """The algorithms of a meta file: one, or all below its key `algorithms`. Raises ConfigInvalid, InvalidInput."""
    path = Path(os.path.abspath(os.path.expanduser(file)))
    meta = _load(str(path), file)
    entries = meta.get("algorithms") or [meta]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _invalid(file, "algorithms", "must be a list of mappings")
    return [_registered(entry, path.parent, file) for entry in entries]


def _load(path: str, file: str) -> dict[str, Any]:
    from nni_manager.config.reading import yaml_reader
    from nni_manager.config.reading.source import read_text

    meta = yaml_reader.read(read_text(path), file).root.value
    if not isinstance(meta, dict):
        raise _invalid(file, "", "must be a mapping with algoType, builtinName and className")
    return meta


def _registered(entry: dict[str, Any], folder: Path, file: str) -> Registered:
    from nni_manager.config.registered_algorithms import Registered

    for name in ("algoType", "builtinName", "className"):
        if not isinstance(entry.get(name), str) or not entry[name].strip():
            raise _invalid(file, name, "is required: algoType, builtinName and className are text")
    if entry["algoType"] not in _KINDS:
        raise _invalid(file, "algoType", f"must be one of {', '.join(_KINDS)}")
    class_args, validator = entry.get("classArgs") or {}, entry.get("classArgsValidator") or ""
    if not isinstance(class_args, dict) or not isinstance(validator, str):
        raise _invalid(file, "classArgs", "must be a mapping, and classArgsValidator a class")
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
            raise _invalid(
                file, "className", f"{name!r} must name a module and a class in it, such as my_tuner.MyTuner"
            )
    top = classes[0].partition(".")[0]
    beside = (folder / f"{top}.py").is_file() or (folder / top).is_dir()
    directory = str(folder) if beside else ""
    if complaint := _complaint(kind, classes, directory):
        advice = "" if beside else "; install it there, or put it beside the meta file"
        raise _invalid(file, "className", f"{complaint}{advice}")
    return directory


def _complaint(kind: str, classes: list[str], directory: str) -> str:
    """Why the Python that would run the classes (the caller's default) cannot import them; empty: it can."""
    import asyncio

    from nni_manager.config import user_classes

    labels = dict(zip((kind, "validator"), classes, strict=False))
    asked = {label: AlgorithmSpec(class_name=name, code_directory=directory) for label, name in labels.items()}
    environment = own_environment()
    python = user_classes.python("", environment)
    refusals = asyncio.run(user_classes.find(asked, python, environment))
    return "; ".join(user_classes.sentence(asked[label], python, refusal) for label, refusal in refusals.items())


def _invalid(file: str, field: str, message: str) -> ConfigInvalid:
    return ConfigInvalid([Problem(message=message, field=field, file=file)])


def as_json(registered: Registered) -> str:
    """A registered algorithm as JSON, with the keys of NNI's meta file; a key without a value is left out."""
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
