"""Detects edits of an experiment file after the experiment was created.

The file is not read again, so `resume` warns of edits, which have no effect. Its path and digest are in the
experiment's provenance record. Without that record, for example after a kill, it does not warn.
"""

from __future__ import annotations

import hashlib
import json
import os.path
from collections.abc import Iterator, Mapping
from pathlib import Path

from nni_manager.config import experiment_file
from nni_manager.config.reading.source import read_text
from nni_manager.domain.errors import ConfigInvalid
from nni_manager.domain.experiment import ExperimentWarning

CODE = "FILE_EDITED"
#: Fields in the record of provenance.
PATH, DIGEST = "experimentFile", "experimentFileDigest"
#: Field → the command that changes it.
_COMMANDS = {
    "trialConcurrency": "concurrency {} -v NUMBER",
    "maxTrialNumber": "trialnum {} -v NUMBER",
    "maxExperimentDuration": "duration {} -v DURATION",
    "searchSpace": "searchspace {} -f FILE",
    "trainingService": "platform {} -f FILE",
}
#: Fields that `--debug` sets, too.
_OF_DEBUG = ("debug", "logLevel")
_MOST_NAMED = 12


def record(canonical: Mapping[str, object], directory: str, file: str) -> dict[str, str]:
    """The record of an experiment file that was read as `canonical`; empty texts without a file."""
    if not (file and directory):
        return {PATH: "", DIGEST: ""}
    return {PATH: os.path.join(directory, os.path.basename(file)), DIGEST: _digest(canonical)}


def look(
    id: str, origin: Mapping[str, object], canonical: Mapping[str, object], data_directory: Path
) -> ExperimentWarning | None:
    """The warning about an edited file; None if it is unchanged or missing. Blocks.

    `canonical`: the experiment's current config.
    """
    path = origin.get(PATH)
    if not isinstance(path, str) or not os.path.isfile(path):
        return None
    try:
        found = experiment_file.load(
            read_text(path),
            directory=Path(path).parent,
            file=path,
            working_directory=data_directory,
            data_directory=data_directory,
        ).canonical
    except ConfigInvalid as error:
        return _warning(path, f"It is not a valid experiment file any more: {error.problems[0]}", "")
    if _digest(found) == origin.get(DIGEST):
        return None
    names = _without_copies(_differences(found, canonical))
    return _warning(path, f"These fields have no effect: {_listed(names)}", _advice(id, names)) if names else None


def _without_copies(names: Iterator[str]) -> list[str]:
    """The fields without those that `--debug` sets and without training services' copies of top-level fields."""
    found = list(dict.fromkeys(names))
    top = {name for name in found if "." not in name} | set(_OF_DEBUG)
    return [
        name for name in found if name not in _OF_DEBUG and name.removeprefix("trainingService.") not in top - {name}
    ]


def _warning(path: str, what: str, advice: str) -> ExperimentWarning:
    message = f"{path} has changed since the experiment was created, and `resume` does not read it. {what}{advice}"
    return ExperimentWarning(code=CODE, message=message)


def _advice(id: str, names: list[str]) -> str:
    fields = dict.fromkeys(name.partition(".")[0] for name in names)
    commands = [f"`nnictl update {_COMMANDS[field].format(id)}`" for field in fields if field in _COMMANDS]
    others = [name for name in names if name.partition(".")[0] not in _COMMANDS]
    parts = [f"run {' and '.join(commands)}"] if commands else []
    parts += [f"{'for the others, ' if commands else ''}create a new experiment"] if others else []
    return f". To change them, {'; '.join(parts)}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _differences(one: object, other: object, place: str = "") -> Iterator[str]:
    """Paths of the fields whose values differ. Search spaces and lists count as one field."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping) or place == "searchSpace":
        if one != other:
            yield place
        return
    for name in dict.fromkeys((*one, *other)):
        yield from _differences(one.get(name), other.get(name), f"{place}.{name}" if place else name)


def _digest(canonical: Mapping[str, object]) -> str:
    """The digest of the config, including files that it names, such as a search space."""
    return hashlib.sha256(json.dumps(canonical, sort_keys=True).encode()).hexdigest()
