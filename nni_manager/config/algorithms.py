"""Models of the arguments of built-in tuners and assessors, made of their constructors' signatures."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from nni_manager.config.reading.document import Path
from nni_manager.config.reading.source import Source
from nni_manager.domain.algorithm import Algorithm
from nni_manager.domain.metrics import OptimizeModeName

if TYPE_CHECKING:
    from pydantic import BaseModel


@functools.cache
def arguments_model(algorithm: Algorithm) -> type[BaseModel]:
    """The model of an algorithm's `classArgs`. An argument that is null is not set."""
    ignored = {name: (OptimizeModeName | None, None) for name in algorithm.ignored}
    return _model(algorithm.name, algorithm.load(), ignored)


def check_arguments(algorithm: Algorithm, given: Mapping[str, object], path: Path, source: Source) -> None:
    """Checks the arguments that a config gives a built-in algorithm; what is wrong is noted in `source`."""
    from nni_manager.config.sections.model_section import valid_settings

    model = arguments_model(algorithm)
    valid_settings(model, _known(given, model, path, algorithm.name, source), path, source)
    for key, sentence in algorithm.missing(given).items():
        source.refuse((*path, key), sentence)


def _model(name: str, made: Any, others: Mapping[str, Any]) -> type[BaseModel]:
    from pydantic import ConfigDict, create_model

    hints = get_type_hints(made.__init__, include_extras=True)
    parameters = inspect.signature(made).parameters.values()
    fields = {one.name: (_type(hints[one.name], name), _default(one)) for one in parameters}
    config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)
    model: type[BaseModel] = create_model(name, __config__=config, **{**others, **fields})
    return model


def _default(parameter: inspect.Parameter) -> object:
    """None for what is required, which `check_arguments` says in words of its own."""
    return None if parameter.default is inspect.Parameter.empty else parameter.default


def _type(hint: Any, name: str) -> Any:
    """The hint, with a model in place of a dataclass in it; null is always accepted."""
    group = next((part for part in get_args(hint) if isinstance(part, type) and is_dataclass(part)), None)
    return (hint if group is None else _model(name, group, {})) | None


def _known(
    given: Mapping[str, Any], model: type[BaseModel], path: Path, owner: str, source: Source
) -> dict[str, object]:
    """The arguments that the model has; others are refused in `source`."""
    from nni_manager.config.sections.model_fields import fields_of, models_in

    fields = fields_of(model)
    known: dict[str, object] = {}
    for key, value in given.items():
        place = (*path, key)
        inner = models_in(fields[key].annotation) if key in fields else []
        if key not in fields:
            source.refuse(place, _unknown(key, list(fields), owner))
        else:
            is_group = inner and isinstance(value, Mapping)
            known[key] = _known(value, inner[0], place, owner, source) if is_group else value
    return known


def _unknown(key: str, known: list[str], owner: str) -> str:
    from nni_manager.config.sections.section import nearest

    guess = nearest(key, known)
    takes = f"it takes {', '.join(known)}" if known else "it takes none"
    return f"{owner} has no such argument; " + (f"did you mean {guess}?" if guess else takes)
