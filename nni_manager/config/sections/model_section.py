"""Reads a mapping of a config with a pydantic model: canonical keys and values, and a message for each problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from nni_manager.config.reading import scalars
from nni_manager.config.reading.document import Path
from nni_manager.config.reading.scalars import flag, kind, mapping, text
from nni_manager.config.reading.source import Source
from nni_manager.config.secrets import read_secret
from nni_manager.config.sections.formats import holding, reader_of
from nni_manager.config.sections.model_fields import (
    fields_of,
    given_kind,
    kind_field,
    kinds,
    locate,
    marks_of,
    models_in,
    names_marked,
)
from nni_manager.config.sections.section import Section

Settings = dict[str, object]


def read_model(raw: Mapping[str, object], model: type[BaseModel], path: Path, name: str, source: Source) -> Settings:
    """The settings that a mapping sets, with canonical keys, and canonical values of fields that have a format.

    Nested mappings are read in the same way. `name`: the prefix in references to secrets, such as the service's name.
    """
    return take_fields(section_of(raw, model, path, source), fields_of(model), name, source)


def section_of(raw: Mapping[str, object], model: type[BaseModel], path: Path, source: Source) -> Section:
    """The mapping as a section with the model's fields. Unknown fields are noted in `source`."""
    other, old = names_marked(model, "otherNames"), names_marked(model, "oldNames")
    return Section(raw, fields_of(model), path, source, other_names=other, old_names=old)


def take_fields(section: Section, fields: Mapping[str, FieldInfo], name: str, source: Source) -> Settings:
    """The canonical values of the fields that a section sets. Invalid ones are omitted and noted in `source`."""
    taken: Settings = {}
    for alias, field in fields.items():
        reader = _reader(field, (*section.path, alias), f"{name}.{alias}", source)
        if not any(section.has(other) for other in marks_of(field).get("unless", ())):
            taken[alias] = section.take(alias, reader)
    return {alias: value for alias, value in taken.items() if value is not None}


def read_choice(
    raw: Mapping[str, object], models: list[type[BaseModel]], path: Path, name: str, source: Source
) -> tuple[type[BaseModel], Settings] | None:
    """The model that a mapping names, and its settings as by `read_model`.

    None if the mapping does not name one of `models`; that is noted in `source`.
    """
    model = _choose(raw, models, path, source)
    return None if model is None else (model, read_model(raw, model, path, name, source))


def validate(model: type[BaseModel], settings: Settings, path: Path, source: Source) -> Settings | None:
    """The complete section from settings. None if it is invalid; that is noted in `source`."""
    faults = _faults(model, settings, path, source)
    return None if faults else model.model_validate(settings).model_dump(by_alias=True, exclude_none=True)


def valid_settings(model: type[BaseModel], settings: Settings, path: Path, source: Source) -> Settings:
    """The settings without those that the model refuses, which are noted in `source`.

    A stored value may exceed an upper bound, because it was accepted before.
    """
    faults = _faults(model, settings, path, source)
    return {alias: value for alias, value in settings.items() if alias not in faults}


def _faults(model: type[BaseModel], settings: Settings, path: Path, source: Source) -> set[object]:
    """The refused fields, which are noted in `source`; ``""`` stands for the section as a whole."""
    try:
        model.model_validate(settings)
        return set()
    except ValidationError as error:
        faults = error.errors(include_url=False)
    refused = [one for one in faults if not (source.stored and one["type"] == "less_than_equal")]
    for fault in refused:
        inner, field = locate(fault["loc"], model)
        place = (*path, *inner)
        if not (fault["type"] in _FOLLOWING and source.is_refused(place)):
            source.refuse(place, _sentence(fault, field))
    return {fault["loc"][0] if fault["loc"] else "" for fault in refused}


def _reader(field: FieldInfo, path: Path, name: str, source: Source) -> Callable[[object], object]:
    marks = marks_of(field)
    if marks.get("secret"):
        return lambda raw: read_secret(raw, name, source)
    if "format" in marks:
        reader = holding(reader_of(str(marks["format"]), source), marks.get("holds", ()), source)
        return reader if marks.get("opaque") else _searched(reader, source, marks.get("placeholders", "any"))
    if marks.get("opaque"):
        return lambda raw: raw
    if models := models_in(field.annotation):
        return lambda raw: _read_inner(raw, models, path, name, source)
    return _searched(lambda raw: raw, source)


_PLACEHOLDERS: Mapping[str, Callable[[object], None]] = {
    "any": scalars.refuse_placeholders,
    "your": scalars.refuse_your_placeholders,
    "kept": lambda raw: None,
}


def _searched(reader: Callable[[object], object], source: Source, refused: str = "any") -> Callable[[object], object]:
    """The reader, preceded by a search for placeholders. `refused`: a key of `_PLACEHOLDERS`."""

    def read(raw: object) -> object:
        if not source.stored:
            for item in raw if isinstance(raw, list) else [raw]:
                _PLACEHOLDERS[refused](item)
        return reader(raw)

    return read


def _read_inner(raw: object, models: list[type[BaseModel]], path: Path, name: str, source: Source) -> object:
    if isinstance(raw, list):
        return [
            _read_inner(item, models, (*path, number), f"{name}[{number}]", source) for number, item in enumerate(raw)
        ]
    if not source.stored:
        scalars.refuse_placeholders(raw)
    model = _choose(raw, models, path, source) if isinstance(raw, dict) else None
    return raw if model is None else read_model(raw, model, path, name, source)  # type: ignore[arg-type]  # a model: a dict


def _choose(
    raw: Mapping[str, object], models: list[type[BaseModel]], path: Path, source: Source
) -> type[BaseModel] | None:
    if len(models) == 1:
        return models[0]
    kind = given_kind(models, raw)
    if not isinstance(kind, str) or kind not in kinds(models):
        source.refuse((*path, kind_field(models)), _which(kind, models))
        return None
    return kinds(models)[kind]


def _which(kind: object, models: list[type[BaseModel]]) -> str:
    choice = ", ".join(kinds(models))
    return f"is required and not set; add one of {choice}" if kind is None else f"must be one of {choice}"


#: Kinds of errors that follow from another error in the same place.
_FOLLOWING = ("missing", "union_tag_invalid", "union_tag_not_found")


def _sentence(fault: Any, field: FieldInfo | None) -> str:
    """The message for a pydantic error. It repeats a value only if the field has fixed choices: it may be a secret."""
    raw = fault["input"]
    if fault["type"] in _PARSERS:
        return _refusal(_PARSERS[fault["type"]], raw)
    found = _SENTENCES.get(fault["type"], "is invalid: {msg}")
    rules = field.metadata if field is not None else ()
    bounds = {name: getattr(rule, name) for rule in rules for name in ("ge", "le") if hasattr(rule, name)}
    if fault["type"] in _BOUNDS and len(bounds) == 2:
        found = "must be from {ge} to {le}, not {number}"
    given = {"kind": kind(raw), "msg": fault["msg"], **bounds, **fault.get("ctx", {})}
    number = f"{raw:g}" if isinstance(raw, float) else raw
    return found.format(**given, number=number, word=f"'{raw}'" if isinstance(raw, str) else kind(raw))


def _refusal(parse: Callable[[object], object], raw: object) -> str:
    try:
        parse(raw)
    except ValueError as error:
        return str(error)
    return "is invalid"


#: Kinds of errors for which a function for the same values has a message.
_PARSERS: Mapping[str, Callable[[object], object]] = {
    "string_type": text,
    "bool_type": flag,
    "dict_type": mapping,
    "model_type": mapping,
    "model_attributes_type": mapping,
}
_BOUNDS = ("greater_than_equal", "less_than_equal")
_SENTENCES = {
    "missing": "is required and not set; add it",
    "value_error": "{error}",
    "int_type": "must be a whole number, not {kind}",
    "float_type": "must be a number, not {kind}",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "list_type": "must be a list, not {kind}",
    "too_short": "must have at least {min_length}",
    "literal_error": "must be {expected}, not {word}",
    "greater_than": "must be above {gt}, not {number}",
    "greater_than_equal": "must be at least {ge}, not {number}",
    "less_than": "must be below {lt}, not {number}",
    "less_than_equal": "must be at most {le}, not {number}",
    "finite_number": "must be a finite number",
}
