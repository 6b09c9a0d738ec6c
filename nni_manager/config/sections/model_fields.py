"""Access to pydantic models of sections: fields by the names in a file, and nested models."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from nni_manager.config.reading.document import Path, fold

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model, by alias."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def marks_of(field: FieldInfo) -> Mapping[str, Any]:
    """The marks of a field, as `platform_kit.section_model` describes them."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, Mapping) else {}


def names_marked(model: type[BaseModel], mark: str) -> dict[str, str]:
    """The additional names that a mark gives a model's fields: other name → alias."""
    return {other: name for name, field in fields_of(model).items() for other in marks_of(field).get(mark, ())}


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models in ``Model``, ``Model | None``, ``list[Model]`` or ``Model | OtherModel``."""
    if hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


def alternatives(annotation: Any) -> list[Any]:
    """The types in ``A | B`` without None; for other annotations, the annotation."""
    is_choice = get_origin(annotation) in (Union, UnionType)
    return [part for part in get_args(annotation) if part is not type(None)] if is_choice else [annotation]


def is_list(annotation: Any) -> bool:
    return any(get_origin(part) is list for part in alternatives(annotation))


def kind_field(models: list[type[BaseModel]]) -> str:
    """The alias of the discriminating field, which is a literal in each model."""
    names = (name for name in fields_of(models[0]) if all(_word(model, name) for model in models))
    return next(names)


def kinds(models: list[type[BaseModel]]) -> dict[str, type[BaseModel]]:
    """The models by their kind, the value of `kind_field`."""
    name = kind_field(models)
    return {_word(model, name): model for model in models}


def given_kind(models: list[type[BaseModel]], raw: Mapping[str, object]) -> object:
    """The kind that a mapping names, or None."""
    name = kind_field(models)
    others = [other for other, alias in names_marked(models[0], "otherNames").items() if alias == name]
    wanted = {fold(one) for one in (name, *others)}
    return next((value for key, value in raw.items() if fold(key) in wanted), None)


def locate(place: Path, model: type[BaseModel]) -> tuple[Path, FieldInfo | None]:
    """A place as pydantic names it → the path as users write it, and the field there, or None.

    The path has aliases in place of attributes, and omits kinds.
    """
    path: list[str | int] = []
    models, field = [model], None
    for step in place:
        if isinstance(step, str) and len(models) > 1 and step in kinds(models):
            models = [kinds(models)[step]]
            continue
        alias, field = _field(models, step)
        path.append(alias)
        if field is not None:
            models = models_in(field.annotation)
    return tuple(path), field


def _field(models: list[type[BaseModel]], step: str | int) -> tuple[str | int, FieldInfo | None]:
    named = models[0].model_fields.items() if len(models) == 1 else ()
    found = ((field.alias or name, field) for name, field in named if step in (field.alias or name, name))
    return next(found, (step, None))


def _word(model: type[BaseModel], alias: str) -> str:
    """The only value that the field may have; empty if it may have several."""
    field = fields_of(model).get(alias)
    words = get_args(field.annotation) if field is not None else ()
    return words[0] if len(words) == 1 and isinstance(words[0], str) else ""
