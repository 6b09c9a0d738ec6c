"""The body that `nnictl update platform` sends: the training services of a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nni_manager.cli.session import current
from nni_manager.domain.errors import InvalidInput


def read(file: str) -> tuple[object, tuple[str, ...], str]:
    """The sections of a file's training services, their secrets' references, and the folder where relative paths start.

    Raises ConfigInvalid, InvalidInput.
    """
    from nni_manager.config.reading import yaml_reader
    from nni_manager.config.reading.source import read_text

    path = Path(os.path.abspath(os.path.expanduser(file)))
    values: object = yaml_reader.read(read_text(str(path)), file).root.value
    whole = isinstance(values, dict) and "platform" not in values
    sections = _of_whole(values, file) if whole else values
    return sections, _references(sections), str(path.parent)


def _of_whole(values: Any, file: str) -> object:
    if (sections := values.get("trainingService")) is None:
        raise InvalidInput(f"{file}: has no trainingService; write one, or its section alone with `platform:` in it")
    return sections


def _references(sections: object) -> tuple[str, ...]:
    """The references to variables and files in the secret fields of sections.

    A section that names no platform has none; the manager says what is wrong with it.
    """
    from nni_manager.config import secrets
    from nni_manager.platform_kit import registry

    found: list[str] = []
    for section in sections if isinstance(sections, list) else [sections]:
        if isinstance(section, dict) and "platform" in section:
            found += secrets.references(registry.find(str(section["platform"])).config, section)
    return tuple(dict.fromkeys(filter(secrets.is_reference, found)))


def body(sections: object, secrets: Mapping[str, str], directory: str, *, now: bool) -> dict[str, Any]:
    """The body of the request. The folder is left out for a manager on another machine, which has other folders."""
    sent = {"trainingService": sections, "now": now, **({"secrets": dict(secrets)} if secrets else {})}
    return sent if current().is_remote else {**sent, "directory": directory}


def told(services: Sequence[Mapping[str, Any]]) -> str:
    """The changed services as a sentence.

    Such as ``its trials run on scripted, scripted-2; local takes nothing new, 3 attempts there go on``.
    """
    kept = [str(one["name"]) for one in services if one["status"] != "removed"]
    sentence = f"its trials run on {', '.join(kept)}"
    for one in services:
        if one["status"] == "removed" and one["openAttempts"]:
            count = one["openAttempts"]
            sentence += f"; {one['name']} takes nothing new, {count} attempt{'s' if count > 1 else ''} there go on"
    return sentence
