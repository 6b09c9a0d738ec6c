"""Converts a program's settings of an experiment to the text of an experiment file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nni_manager.domain.errors import InvalidInput
from nni_manager.programs.plain_values import plain_fields
from nni_manager.programs.request import Source
from nni_manager.programs.spelling import OWN_KEYS, Spelling

if TYPE_CHECKING:
    from nni_manager.config.reading.document import Document

#: The fields that name a training service, of both formats.
_SERVICES = frozenset({"trainingService", "trainingServicePlatform"})

#: An experiment file's path, its text (with a line break), or its fields.
Config = str | os.PathLike[str] | Mapping[str, Any]


def source(config: Config | None, fields: Mapping[str, Any], directory: str | os.PathLike[str] | None) -> Source:
    """The experiment file from `config` and `fields`, which override the file's.

    Names may have Python's spelling (``max_trial_number``) or the file's (``maxTrialNumber``). Relative paths start at
    `directory`; default: the file's folder, or the current one. Without a file, trials run on this machine unless a
    field sets another training service. Raises InvalidInput.
    """
    text, folder, file = _given(config)
    folder = os.path.abspath(os.path.expanduser(directory)) if directory is not None else folder
    if text is not None and not fields:
        return Source(text=text, directory=folder, file=file)
    document = None if text is None else _document(text, file)
    below, _ = in_file_spelling({} if document is None else document.root.value)
    found, spelling = in_file_spelling({**config, **fields} if isinstance(config, Mapping) else fields)
    if document is None and not found.keys() & _SERVICES:
        found["trainingService"] = {"platform": "local"}
    whole = json.dumps({**below, **found}, ensure_ascii=False)
    return Source(text=whole, directory=folder, file=file, spelling=replace(spelling, below=document, file=file))


def in_file_spelling(fields: Mapping[str, Any]) -> tuple[dict[str, Any], Spelling]:
    """The fields with the names and values of experiment files, and the program's names.

    The user's own keys, such as those of a search space, are kept. Raises InvalidInput, with the field, for values that
    experiment files cannot hold.
    """
    names: dict[str, str] = {}
    found = _spelled(plain_fields(fields), names)
    return found, Spelling(names=names, given=frozenset(found))


def _spelled(fields: Mapping[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The fields with the names of experiment files; `names` gets the given name of each."""
    found = {}
    for name, value in fields.items():
        spelled = _camel(name)
        names[spelled] = name
        found[spelled] = value if spelled in OWN_KEYS else _inner(value, names)
    return found


def _inner(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, Mapping):
        return _spelled(value, names)
    return [_inner(one, names) for one in value] if isinstance(value, list) else value


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others) if first and all(others) else name


def _given(config: Config | None) -> tuple[str | None, str, str]:
    """(text of the file or None, base folder of its paths, its name)."""
    if config is None or isinstance(config, Mapping):
        return None, os.getcwd(), ""
    if isinstance(config, str) and "\n" in config:
        return config, os.getcwd(), ""
    from nni_manager.config.reading.source import read_text

    path = Path(os.path.abspath(os.path.expanduser(config)))
    return read_text(str(path)), str(path.parent), str(path)


def _document(text: str, file: str) -> Document:
    """The parsed text. Raises ConfigInvalid, and InvalidInput for a text without fields."""
    from nni_manager.config.reading import yaml_reader

    found = yaml_reader.read(text, file)
    if not isinstance(found.root.value, dict):
        raise InvalidInput(f"{file or 'the experiment file'} does not contain fields")
    return found
