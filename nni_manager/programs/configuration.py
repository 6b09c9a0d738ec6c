"""What a program says of an experiment → the text of an experiment file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import InvalidInput
from nni_manager.programs.request import Source

#: Fields whose keys are the user's own, as Python and as experiment files spell them.
_OWN_KEYS = frozenset({"searchSpace", "classArgs", "objectives", "constraints", "environment", "env", "labels"})

#: The fields that name a training service, of both formats.
_SERVICES = frozenset({"trainingService", "trainingServicePlatform"})

#: An experiment file's path, its text (with a line break), or its fields.
Config = str | os.PathLike[str] | Mapping[str, Any]


def source(config: Config | None, fields: Mapping[str, Any], directory: str | os.PathLike[str] | None) -> Source:
    """The experiment file that `config` and `fields` make together; a field takes the place of the file's.

    Names may be written in Python's spelling (``max_trial_number``) or the file's (``maxTrialNumber``). Relative paths
    start at `directory`: not given, at the file's folder, or the current one. Without a file, trials run on this
    machine unless a field names another training service. Raises InvalidInput.
    """
    text, folder, file = _given(config)
    folder = os.path.abspath(os.path.expanduser(directory)) if directory is not None else folder
    if text is not None and not fields:
        return Source(text=text, directory=folder, file=file)
    below = _fields_of(text, file) if text is not None else config if isinstance(config, Mapping) else {}
    made = {**in_file_spelling(below), **in_file_spelling(fields)}
    if text is None and not made.keys() & _SERVICES:
        made["trainingService"] = {"platform": "local"}
    return Source(text=_as_text(made), directory=folder, file=file)


def in_file_spelling(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with the names of experiment files; the user's own keys, such as those of a search space, stay."""
    named = {_camel(str(name)): value for name, value in fields.items()}
    return {name: value if name in _OWN_KEYS else _inner(value) for name, value in named.items()}


def _inner(value: Any) -> Any:
    if isinstance(value, Mapping):
        return in_file_spelling(value)
    if isinstance(value, list | tuple):
        return [_inner(one) for one in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others) if first and all(others) else name


def _given(config: Config | None) -> tuple[str | None, str, str]:
    """(text of the file or None, folder where its paths start, its name)."""
    if config is None or isinstance(config, Mapping):
        return None, os.getcwd(), ""
    if isinstance(config, str) and "\n" in config:
        return config, os.getcwd(), ""
    from nni_manager.config.reading.source import read_text

    path = Path(os.path.abspath(os.path.expanduser(config)))
    return read_text(str(path)), str(path.parent), str(path)


def _fields_of(text: str, file: str) -> dict[str, Any]:
    from nni_manager.config.reading import yaml_reader

    found = yaml_reader.read(text, file).root.value
    if not isinstance(found, dict):
        raise InvalidInput(f"{file or 'the experiment file'} holds no fields")
    return found


def _as_text(fields: Mapping[str, Any]) -> str:
    """Raises InvalidInput for what no experiment file can hold, naming its field."""
    for name, value in fields.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{name}: {error}; give numbers, text, lists and dictionaries") from None
    return json.dumps(dict(fields), ensure_ascii=False)
