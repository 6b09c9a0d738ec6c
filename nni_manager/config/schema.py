"""The JSON schema of experiment files, for completion and checks in editors.

It is generated from the models. It describes NNI's second format, with every field spelled as in the reference
documentation. `nnictl config check` also reads other spellings and the first format, and finds problems that a schema
cannot express.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from nni_manager.assessors.registry import CATALOGUE as ASSESSORS
from nni_manager.config.sections.algorithm_section import arguments_model
from nni_manager.config.sections.experiment_model import Experiment
from nni_manager.config.sections.formats import FORMATS
from nni_manager.config.sections.model_fields import fields_of, is_list, marks_of, models_in
from nni_manager.config.sections.platform_section import SHARED
from nni_manager.domain.algorithm import Algorithm, Catalogue
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.service import NAME
from nni_manager.platform_kit import registry
from nni_manager.shared_storage.section import KINDS
from nni_manager.tuners.registry import CATALOGUE as TUNERS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_REQUIRED = ("trialConcurrency", "trainingService")


def experiment_schema() -> Schema:
    """The JSON schema (draft 2020-12) of an experiment file."""
    whole = _mapping(Experiment)
    for name, section in _sections().items():
        whole["properties"][name] = {**whole["properties"][name], **_or_null(section)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Experiment of nni_manager",
        **whole,
        "required": list(_REQUIRED),
        "allOf": [
            {"oneOf": _each_given("tuner", "advisor", "optimizeMode")},
            {"anyOf": _each_given("searchSpace", "searchSpaceFile")},
        ],
    }


def _sections() -> dict[str, Schema]:
    platforms = _any_of(_platform(one) for one in registry.descriptions())
    algorithms = {"tuner": TUNERS, "advisor": TUNERS, "assessor": ASSESSORS}
    return {
        **{field: _algorithm(catalogue) for field, catalogue in algorithms.items()},
        "searchSpace": {"type": "object"},
        "searchSpaceFile": _TEXT,
        "objectives": {"type": "object", "additionalProperties": {"enum": list(OptimizeMode)}, "minProperties": 1},
        "constraints": {
            "type": "object",
            "additionalProperties": {"type": "string", "pattern": "^ *(<=|>=|<|>) *[^ ]+ *$"},
            "minProperties": 1,
        },
        "sharedStorage": _any_of(_mapping(kind) for kind in KINDS),
        "trainingService": _any_of([platforms, {"type": "array", "items": platforms, "minItems": 1}]),
    }


def _platform(description: registry.PlatformDescription) -> Schema:
    """The section of a platform. Fields that the top level may set are not required."""
    section = _mapping(description.config)
    section["properties"]["platform"] = {"enum": [description.name, *description.old_names]}
    section["properties"][NAME] = _or_null(_TEXT)
    section["required"] = ["platform", *(one for one in section["required"] if one not in (*SHARED, "platform"))]
    return section


def _algorithm(catalogue: Catalogue) -> Schema:
    """A built-in algorithm, a registered one, or a user's class."""
    names = [name for one in catalogue.built_in for name in (one.name, *one.aliases)]
    other = {"type": "string", "not": {"enum": names}}
    arguments = _or_null({"type": "object"})
    user_class = {"className": {"type": "string", "pattern": r"\."}, "codeDirectory": _or_null(_TEXT)}
    return _any_of(
        [
            *map(_built_in, catalogue.built_in),
            _closed({"name": other, "classArgs": arguments}, ["name"]),
            _closed({**user_class, "classArgs": arguments}, ["className"]),
        ]
    )


def _built_in(algorithm: Algorithm) -> Schema:
    arguments = _or_null(_mapping(arguments_model(algorithm)))
    return _closed({"name": {"enum": [algorithm.name, *algorithm.aliases]}, "classArgs": arguments}, ["name"])


def _mapping(model: type[BaseModel]) -> Schema:
    """The schema of a model's fields, under all their names."""
    properties: Schema = {}
    required = []
    for name, field in fields_of(model).items():
        marks = marks_of(field)
        others = {other: {"deprecated": True} for other in marks.get("oldNames", ())}
        others |= {other: {} for other in marks.get("otherNames", ())}
        properties[name] = _field(field)
        properties |= {other: {**properties[name], **extra} for other, extra in others.items()}
        required += [name] if field.is_required() and not others else []
    return _closed(properties, required)


def _field(field: FieldInfo) -> Schema:
    described = {"description": field.description} if field.description else {}
    value = _value(field)
    return {**described, **(value if field.is_required() else _or_null(value))}


def _value(field: FieldInfo) -> Schema:
    marks = marks_of(field)
    if marks.get("secret"):
        return _TEXT
    if "format" in marks:
        return dict(FORMATS[marks["format"]].schema)
    if not (models := models_in(field.annotation)):
        return _plain(field)
    inner = _any_of(map(_mapping, models))
    return {"type": "array", "items": inner} if is_list(field.annotation) else inner


def _plain(field: FieldInfo) -> Schema:
    annotation: Any = field.annotation
    for rule in field.metadata:
        annotation = Annotated[annotation, rule]
    return TypeAdapter(annotation).json_schema()


def _closed(properties: Mapping[str, Any], required: list[str]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": required,
        "additionalProperties": False,
    }


def _any_of(schemas: Iterable[Schema]) -> Schema:
    found = list(schemas)
    return found[0] if len(found) == 1 else {"anyOf": found}


def _or_null(schema: Schema) -> Schema:
    """The schema, or null: a field that is null is not set."""
    return schema if not schema else {"anyOf": [schema, {"type": "null"}]}


def _each_given(*names: str) -> list[Schema]:
    """Schemas of the mappings that set each of the fields."""
    return [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]
