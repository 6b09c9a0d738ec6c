"""The section `trainingService` → canonical sections, one per platform, validated by that platform's own model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from nni_manager.config import scalars
from nni_manager.config.document import Path, fold
from nni_manager.config.section import Section
from nni_manager.config.source import Source
from nni_manager.domain.errors import InvalidInput
from nni_manager.platform_kit import registry

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

#: Copied from the top level into every platform's section that does not set them.
SHARED = ("trialCommand", "trialCodeDirectory", "trialGpuNumber", "nniManagerIp", "debug")

Settings = dict[str, object]


def read_platforms(raw: object, path: Path, shared: Settings, source: Source) -> list[Settings]:
    """Answers the canonical sections; what is wrong with them is noted in `source`.

    `raw` is one section or, for several platforms at once, a list; `shared` the top level's values of `SHARED`.
    """
    if not isinstance(raw, list):
        return list(_read_all({path: raw}, shared, source))
    if not raw:
        source.refuse(path, "is an empty list; name at least one platform")
    sections = list(_read_all({(*path, number): item for number, item in enumerate(raw)}, shared, source))
    return [section | _hybrid(section) for section in sections] if len(raw) > 1 else sections


def _read_all(items: Mapping[Path, object], shared: Settings, source: Source) -> Iterator[Settings]:
    for path, raw in items.items():
        section = _read_platform(raw, path, shared, source)
        if section is not None:
            yield section


def _hybrid(section: Settings) -> Settings:
    return {"reuseMode": True} if "reuseMode" in section else {}


def _read_platform(raw: object, path: Path, shared: Settings, source: Source) -> Settings | None:
    if not isinstance(raw, dict):
        source.refuse(path, f"must be a mapping such as {{platform: local}}, not {scalars.kind(raw)}")
        return None
    description = _find(raw, path, source)
    if description is None:
        return None
    settings = _values(raw, description.config, path, source) | {"platform": description.name}
    known = {field.alias for field in description.config.model_fields.values()}
    inherited = {name: value for name, value in shared.items() if name in known}
    return _validate(description.config, inherited | settings, path, source)


def _find(raw: Mapping[str, object], path: Path, source: Source) -> registry.PlatformDescription | None:
    name = next((value for key, value in raw.items() if fold(key) == "platform"), None)
    try:
        return registry.find(_platform_name(name))
    except (InvalidInput, ValueError) as error:
        source.refuse((*path, "platform"), str(error))
        return None


def _platform_name(raw: object) -> str:
    if raw is None:
        raise ValueError(f"is required and not set; add one of: {', '.join(registry.names())}")
    return scalars.text(raw)


def _values(raw: Mapping[str, object], model: type[BaseModel], path: Path, source: Source) -> Settings:
    """Canonical keys, canonical values where a field declares a format; sections within are read alike."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    section = Section(raw, fields, path, source)
    taken = {name: section.take(name, _reader(field, (*path, name), source)) for name, field in fields.items()}
    return {name: value for name, value in taken.items() if value is not None}


def _reader(field: FieldInfo, path: Path, source: Source) -> Callable[[object], object]:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "format" in extra:
        return _formats(source)[str(extra["format"])]
    inner = _inner_model(field.annotation)
    return (lambda raw: _inner_values(raw, inner, path, source)) if inner else (lambda raw: raw)


def _formats(source: Source) -> dict[str, Callable[[object], object]]:
    return {
        "duration": scalars.duration,
        "seconds": scalars.seconds,
        "memory": scalars.memory_mb,
        "gpu-indices": scalars.gpu_indices,
        "path": lambda raw: source.path(scalars.text(raw)),
        "directory": lambda raw: source.existing_directory(scalars.text(raw)),
        "file": lambda raw: source.existing_file(scalars.text(raw)),
    }


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    """The model in ``Model``, ``Model | None`` or ``list[Model]``."""
    if hasattr(annotation, "model_fields"):
        return annotation  # type: ignore[no-any-return]
    return next(filter(None, map(_inner_model, get_args(annotation))), None)


def _inner_values(raw: object, model: type[BaseModel], path: Path, source: Source) -> object:
    if isinstance(raw, list):
        return [_inner_values(item, model, (*path, number), source) for number, item in enumerate(raw)]
    return _values(raw, model, path, source) if isinstance(raw, dict) else raw


def _validate(model: type[BaseModel], settings: Settings, path: Path, source: Source) -> Settings | None:
    from pydantic import ValidationError  # imported already: a model is at hand

    try:
        return model.model_validate(settings).model_dump(by_alias=True, exclude_none=True)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            source.refuse((*path, *_written(fault["loc"], model)), _sentence(fault))
        return None


def _written(place: Path, model: type[BaseModel]) -> Path:
    """Pydantic names a field that is not set as Python does."""
    first = model.model_fields.get(str(place[0])) if place else None
    return (first.alias, *place[1:]) if first and first.alias else place


def _sentence(fault: Any) -> str:
    """Pydantic's findings in our words; never with the value, it may be a secret."""
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
    "list_type": "must be a list",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "literal_error": "must be {expected}",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
}
