"""A mapping of a config, read by a pydantic model: canonical keys and values, and pydantic's findings in our words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nni_manager.config.reading import placeholders
from nni_manager.config.reading.document import Path
from nni_manager.config.reading.source import Source
from nni_manager.config.secrets import read_secret
from nni_manager.config.sections.model_fields import (
    fields_of,
    given_kind,
    kind_field,
    kinds,
    marks_of,
    models_in,
    names_marked,
    written,
)
from nni_manager.config.sections.section import Section
from nni_manager.config.sections.section_values import holding, reader_of

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

Settings = dict[str, object]


def read_model(raw: Mapping[str, object], model: type[BaseModel], path: Path, name: str, source: Source) -> Settings:
    """The settings that a mapping sets: canonical keys, canonical values where a field is marked with a format.

    Mappings within are read alike. `name`: of the service, or what else stands before a secret's field in the secret's
    reference.
    """
    fields = fields_of(model)
    section = Section(
        raw,
        fields,
        path,
        source,
        other_names=names_marked(model, "otherNames"),
        old_names=names_marked(model, "oldNames"),
    )
    taken: Settings = {}
    for alias, field in fields.items():
        reader = _reader(field, (*path, alias), f"{name}.{alias}", source)
        if not _is_replaced_by_other_field(field, section):
            taken[alias] = section.take(alias, reader)
    return {alias: value for alias, value in taken.items() if value is not None}


def read_choice(
    raw: Mapping[str, object], models: list[type[BaseModel]], path: Path, name: str, source: Source
) -> tuple[type[BaseModel], Settings] | None:
    """The one of `models` that a mapping names, and its settings as by `read_model`.

    None when the mapping names none of them, which is then noted in `source`.
    """
    model = _choose(raw, models, path, source)
    return None if model is None else (model, read_model(raw, model, path, name, source))


def validate(model: type[BaseModel], settings: Settings, path: Path, source: Source) -> Settings | None:
    """The complete section that settings make; None when it is refused, which is then noted in `source`."""
    from pydantic import ValidationError  # imported already: a model is at hand

    try:
        return model.model_validate(settings).model_dump(by_alias=True, exclude_none=True)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            place = (*path, *written(fault["loc"], model))
            if not (fault["type"] in _FOLLOWING and source.is_refused(place)):
                source.refuse(place, _sentence(fault))
        return None


def _is_replaced_by_other_field(field: FieldInfo, section: Section) -> bool:
    return any(section.has(other) for other in marks_of(field).get("unless", ()))


def _reader(field: FieldInfo, path: Path, name: str, source: Source) -> Callable[[object], object]:
    marks = marks_of(field)
    if marks.get("secret"):
        return lambda raw: read_secret(raw, name, source)
    if marks.get("opaque"):
        return lambda raw: raw
    if "format" in marks:
        return _searched(holding(reader_of(str(marks["format"]), source), marks.get("holds", ()), source), source)
    if models := models_in(field.annotation):
        return lambda raw: _read_inner(raw, models, path, name, source)
    return _searched(lambda raw: raw, source)


def _searched(reader: Callable[[object], object], source: Source) -> Callable[[object], object]:
    def read(raw: object) -> object:
        if not source.stored:
            for item in raw if isinstance(raw, list) else [raw]:
                placeholders.refuse(item)
        return reader(raw)

    return read


def _read_inner(raw: object, models: list[type[BaseModel]], path: Path, name: str, source: Source) -> object:
    if isinstance(raw, list):
        return [
            _read_inner(item, models, (*path, number), f"{name}[{number}]", source) for number, item in enumerate(raw)
        ]
    if not source.stored:
        placeholders.refuse(raw)
    model = _choose(raw, models, path, source) if isinstance(raw, dict) else None
    return raw if model is None else read_model(raw, model, path, name, source)  # type: ignore[arg-type]


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


#: Kinds of findings that only follow from a problem in the same place.
_FOLLOWING = ("missing", "union_tag_invalid", "union_tag_not_found")


def _sentence(fault: Any) -> str:
    """The sentence for a fault that pydantic found, in our words; never with the value, which may be a secret."""
    sentence = _SENTENCES.get(fault["type"])
    if sentence is None:
        return f"is not valid: {fault['msg']}"
    return sentence.format(**fault.get("ctx", {}))


_SENTENCES = {
    "missing": "is required and not set; add it",
    "value_error": "{error}",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text; put it in quotes",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "list_type": "must be a list",
    "too_short": "must have at least {min_length}",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "model_attributes_type": "must be a mapping of names to values",
    "literal_error": "must be {expected}",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
}
