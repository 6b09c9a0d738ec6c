"""The place of a field that a file has at the wrong level, for the message that refuses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nni_manager.config.reading.document import Path, fold
from nni_manager.config.reading.source import Source
from nni_manager.config.sections.experiment_fields import FIELDS
from nni_manager.domain.errors import InvalidInput

if TYPE_CHECKING:
    from pydantic import BaseModel

_ALGORITHMS = ("tuner", "assessor", "advisor")
_OF_ALGORITHM = ("className", "codeDirectory", "classArgs")
_ARGUMENTS = ("optimize_mode",)


def place_of(key: str, path: Path, source: Source) -> str:
    """Where a field that is unknown at `path` belongs: ``at the top of the file``, ``in trainingService``; empty: it
    belongs nowhere."""
    values = source.document.root.value if source.document is not None else None
    if not isinstance(values, dict) or any(fold(one) == fold("trainingServicePlatform") for one in values):
        return ""
    here = ".".join(str(step) for step in path if isinstance(step, str))
    return next((where for name, place, where in _fields(values) if fold(name) == fold(key) and place != here), "")


def _fields(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(name, path of its section, the same in words) of every field that the file could have."""
    given = {fold(name): value for name, value in values.items()}
    yield from ((name, "", "at the top of the file") for name in FIELDS)
    yield from _of_platforms(given.get("trainingservice"))
    for section in (one for one in _ALGORITHMS if one in given):
        yield from ((name, section, f"in {section}") for name in _OF_ALGORITHM)
        yield from ((name, f"{section}.classArgs", f"in {section}.classArgs") for name in _ARGUMENTS)


def _of_platforms(raw: object) -> Iterator[tuple[str, str, str]]:
    from nni_manager.platform_kit import registry

    for section in raw if isinstance(raw, list) else [raw]:
        values = section if isinstance(section, dict) else {}
        name = next((str(values[key]) for key in values if fold(key) == "platform"), "")
        try:
            model = registry.find(name).config
        except InvalidInput:
            continue
        yield from _of_model(model, "trainingService", "trainingService")


def _of_model(model: type[BaseModel], path: str, words: str) -> Iterator[tuple[str, str, str]]:
    from nni_manager.config.sections.model_fields import fields_of, models_in

    for name, field in fields_of(model).items():
        yield name, path, f"in {words}"
        for inner in models_in(field.annotation):
            above = f"{path}.{name}"
            yield from _of_model(inner, above, f"each entry of {above}" if "list[" in str(field.annotation) else above)
