"""NNI's meta file of an algorithm → what is registered, once the class was seen to be there."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nni_manager.cli import user_code
from nni_manager.domain.errors import ConfigInvalid, Problem

if TYPE_CHECKING:
    from nni_manager.config.registered_algorithms import Registered

_KINDS = {"tuner": "tuner", "advisor": "tuner", "assessor": "assessor"}


def read(file: str) -> list[Registered]:
    """One algorithm, or all below `algorithms`. Raises ConfigInvalid, InvalidInput."""
    path = Path(os.path.abspath(os.path.expanduser(file)))
    meta = _load(str(path), file)
    entries = meta.get("algorithms") or [meta]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _invalid(file, "algorithms", "must be a list of mappings")
    return [_registered(entry, path.parent, file) for entry in entries]


def _load(path: str, file: str) -> dict[str, Any]:
    from nni_manager.config import yaml_reader
    from nni_manager.config.text_file import read_text

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
        name=entry["builtinName"].strip(), kind=_KINDS[entry["algoType"]], class_name=entry["className"],
        code_directory=_folder_of(classes, folder, file), class_args=class_args,
        accepts_class_args=entry.get("acceptClassArgs", True) is not False, validator=validator,
    )  # fmt: skip


def _folder_of(classes: list[str], folder: Path, file: str) -> str:
    """The meta file's own folder when the module stands beside it, empty when it is installed. Raises ConfigInvalid."""
    for name in classes:
        if "." not in name.strip("."):
            raise _invalid(
                file, "className", f"{name!r} must name a module and a class in it, such as my_tuner.MyTuner"
            )
    top = classes[0].partition(".")[0]
    beside = (folder / f"{top}.py").is_file() or (folder / top).is_dir()
    directory = str(folder) if beside else ""
    if complaint := user_code.missing(directory, classes):
        where = f"in {folder}" if beside else f"by {sys.executable}; install it, or put it beside the meta file"
        raise _invalid(file, "className", f"{classes[0]} cannot be imported {where} ({complaint})")
    return directory


def _invalid(file: str, field: str, message: str) -> ConfigInvalid:
    return ConfigInvalid([Problem(message=message, field=field, file=file)])


def as_json(registered: Registered) -> str:
    """In the words of NNI's meta file."""
    meta = {
        "algoType": registered.kind, "builtinName": registered.name, "className": registered.class_name,
        "codeDirectory": registered.code_directory, "classArgs": dict(registered.class_args),
        "acceptClassArgs": registered.accepts_class_args, "classArgsValidator": registered.validator, "source": "user",
    }  # fmt: skip
    return json.dumps({name: value for name, value in meta.items() if value not in ("", {})}, indent=2)
