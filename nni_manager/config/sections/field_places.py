"""Finds the section where a misplaced field belongs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from nni_manager.assessors.registry import CATALOGUE as ASSESSORS
from nni_manager.config.reading.document import Path, fold
from nni_manager.config.reading.source import Source
from nni_manager.config.sections.experiment_model import FIELDS
from nni_manager.config.sections.model_fields import fields_of, models_in
from nni_manager.domain.errors import InvalidInput
from nni_manager.platform_kit import registry
from nni_manager.tuners.registry import CATALOGUE as TUNERS

_ALGORITHMS = {"tuner": TUNERS, "assessor": ASSESSORS, "advisor": TUNERS}
_OF_ALGORITHM = ("className", "codeDirectory", "classArgs")
_ARGUMENTS = ("optimize_mode",)
_SERVICE, _STORAGE = "trainingService", "sharedStorage"

#: Name of a field, path of its section, and the path as text.
Place = tuple[str, str, str]


def place_of(key: str, value: object, path: Path, source: Source) -> str:
    """Where a field that is unknown at `path` belongs: ``at the top of the file``, ``in trainingService``, or empty."""
    given = source.document.top if source.document is not None else {}
    if not given or fold("trainingServicePlatform") in given:
        return ""
    here = ".".join(str(step) for step in path if isinstance(step, str))
    places = (*_of_given_name(key, value), *_fields(given), *(_of_other_sections(given) if not here else ()))
    return next((where for name, place, where in places if fold(name) == fold(key) and place != here), "")


def _of_given_name(key: str, value: object) -> Iterator[Place]:
    """The section of the algorithm with this `name`."""
    for section in ("tuner", "assessor"):
        if isinstance(value, str) and _ALGORITHMS[section].look_up(value) is not None:
            yield "name", section, f"in {section}"


def _fields(given: Mapping[str, Any]) -> Iterator[Place]:
    """Every possible field of the sections in the file. `given`: its top-level values, by folded name."""
    sections = [one for one in _ALGORITHMS if one in given]
    for section in sections:  # before the top-level field `optimizeMode`, which replaces a tuner
        yield from _section(_ARGUMENTS, f"{section}.classArgs")
    yield from ((name, "", "at the top of the file") for name in FIELDS)
    yield from _of_platforms(given.get(fold(_SERVICE)))
    for section in sections:
        yield from _section(_OF_ALGORITHM, section)


def _of_other_sections(given: Mapping[str, Any]) -> Iterator[Place]:
    """Fields of sections that the file lacks, or of another kind of section."""
    for section, catalogue in _ALGORITHMS.items():
        values = given.get(section)
        algorithm = catalogue.look_up(str(values.get("name"))) if isinstance(values, dict) else None
        if algorithm is not None:
            yield from _section(algorithm.arguments, f"{section}.classArgs")
    yield from _section(("platform",), _SERVICE)
    yield from _section(_OF_ALGORITHM, "tuner")
    yield from _of_storage()
    yield from _of_all(tuple((one.name, one.config) for one in registry.descriptions()))


@cache
def _of_all(platforms: tuple[tuple[str, type[BaseModel]], ...]) -> tuple[Place, ...]:
    """The fields of all platforms, (name, model), each with the platforms that have it."""
    found: dict[Place, list[str]] = {}
    for platform, model in platforms:
        for place in _of_model(model, _SERVICE):
            found.setdefault(place, []).append(platform)
    return tuple(
        (name, path, f"{words} of platform {' or '.join(dict.fromkeys(names))}")
        for (name, path, words), names in found.items()
    )


def _section(names: tuple[str, ...], section: str) -> Iterator[Place]:
    return ((name, section, f"in {section}") for name in names)


def _of_storage() -> Iterator[Place]:
    from nni_manager.shared_storage.section import KINDS

    for kind in KINDS:
        yield from _of_model(kind, _STORAGE)


def _of_platforms(raw: object) -> Iterator[Place]:
    for section in raw if isinstance(raw, list) else [raw]:
        values = section if isinstance(section, dict) else {}
        name = next((str(values[key]) for key in values if fold(key) == "platform"), "")
        try:
            model = registry.find(name).config
        except InvalidInput:
            continue
        yield from _of_model(model, _SERVICE)


def _of_model(model: type[BaseModel], path: str, words: str = "") -> Iterator[Place]:
    for name, field in fields_of(model).items():
        yield name, path, f"in {words or path}"
        for inner in models_in(field.annotation):
            above = f"{path}.{name}"
            yield from _of_model(inner, above, f"each entry of {above}" if "list[" in str(field.annotation) else above)
