"""The sections `tuner`, `assessor`, `advisor` with arguments of built-in algorithms; `objectives`, `constraints`."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from pathlib import Path as FilePath
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from nni_manager.assessors.registry import CATALOGUE as ASSESSORS
from nni_manager.config import registered_algorithms
from nni_manager.config.reading import scalars
from nni_manager.config.reading.document import Path
from nni_manager.config.reading.scalars import kind, mapping, text
from nni_manager.config.reading.source import Source
from nni_manager.config.registered_algorithms import Registered
from nni_manager.config.sections import old_arguments
from nni_manager.config.sections.model_fields import fields_of, models_in
from nni_manager.config.sections.model_section import valid_settings
from nni_manager.config.sections.section import Section, nearest
from nni_manager.domain.algorithm import Algorithm, Catalogue
from nni_manager.domain.metrics import OptimizeMode, OptimizeModeName
from nni_manager.domain.objectives import parse_constraint
from nni_manager.domain.results.direction import must_say
from nni_manager.tuners.registry import CATALOGUE as TUNERS

_FIELDS = ("name", "className", "codeDirectory", "classArgs")
#: Fields of NNI's first format in these sections → what to write instead.
FIRST_FORMAT = {
    "builtinTunerName": "name",
    "builtinAssessorName": "name",
    "builtinAdvisorName": "name",
    "codeDir": "codeDirectory",
    "classFileName": "className: module.Class",
    "gpuIndices": "tunerGpuIndices at the top level",
}
#: File names may contain hyphens and begin with a digit: the module is imported by name.
_CLASS_NAME = re.compile(r"([\w-]+\.)+[^\W\d]\w*")


def read_algorithm(raw: object, path: Path, family: Catalogue, source: Source) -> dict[str, object]:
    """The canonical section of an algorithm. Problems are noted in `source`."""
    if not isinstance(raw, dict):
        source.refuse(path, f"must be a mapping such as {{name: {family.names[0]}}}, not {kind(raw)}")
        return {}
    source.note_foreign_names(path, FIRST_FORMAT)
    section = Section(raw, _FIELDS, path, source)
    for name in ("name", "className", "codeDirectory") if not source.stored else ():
        section.take(name, scalars.refuse_your_placeholders)
    if section.has("name") == section.has("className"):
        which = "both are set; keep one" if section.has("name") else "neither is set"
        source.refuse(path, f"needs either name (a built-in {family.kind}) or className (your own); {which}")
        return {}
    return _built_in(section, family, source) if section.has("name") else _user_class(section, source)


def _built_in(section: Section, family: Catalogue, source: Source) -> dict[str, object]:
    if section.has("codeDirectory"):
        section.refuse("codeDirectory", f"belongs to className, not to a built-in {family.kind}; remove it")
    name = section.take("name", text)
    arguments = section.take("classArgs", mapping)
    if name is None:
        return _present(classArgs=arguments)
    if (
        arguments is not None
        and source.translate is not None
        and arguments.get("optimize_mode") is None
        and must_say(name)
    ):
        section.refuse("classArgs", f"requires optimize_mode with {name} in NNI's first format; add it")
    if family.look_up(name) is None and (other := _other_class(name, family, arguments or {}, section, source)):
        return _present(**other)
    if arguments and (known := family.look_up(name)) is not None:
        arguments = old_arguments.renewed(known.name, arguments, (*section.path, "classArgs"), source)
    name = _check_name(name, family, section, source, arguments or {})
    if arguments and name in family.names:
        arguments = _present(**arguments)  # null: not set
    return _present(name=name, classArgs=arguments)


def _other_class(
    name: str, family: Catalogue, arguments: Mapping[str, object], section: Section, source: Source
) -> dict[str, object] | None:
    """The section with a class, registered or NNI's own, in place of the name; None for other names.

    So the experiment does not depend on later changes of the registration. Raises InvalidInput.
    """
    if source.data_directory:
        registered = registered_algorithms.find(FilePath(source.data_directory), family.kind, name)
        if registered is not None:
            return _of_registered(registered, arguments, section)
    if (found := family.of_nni_called(name)) is None:
        return None
    return {"className": found.class_name, "classArgs": {**found.class_args, **arguments} or None}


def _of_registered(registered: Registered, arguments: Mapping[str, object], section: Section) -> dict[str, object]:
    if arguments and not registered.accepts_class_args:
        section.refuse("classArgs", f"{registered.name} takes no arguments; remove them")
    merged = {**registered.class_args, **arguments}
    directory = registered.code_directory or None
    return {"className": registered.class_name, "codeDirectory": directory, "classArgs": merged or None}


def _check_name(name: str, family: Catalogue, section: Section, source: Source, arguments: Mapping[str, object]) -> str:
    algorithm = family.look_up(name)
    if algorithm:
        if algorithm.is_built_in:
            check_arguments(algorithm, arguments, (*section.path, "classArgs"), source)
        return algorithm.name
    if not (source.elsewhere or (source.stored and family.is_missing(name))):
        section.refuse("name", _unknown(name, family))
    return name


def _user_class(section: Section, source: Source) -> dict[str, object]:
    directory = section.take("codeDirectory", lambda raw: source.existing_directory(text(raw)))
    return _present(
        className=section.take("className", _class_name),
        # in a stored config, a registered class that is installed has no folder
        codeDirectory=directory or (None if source.stored else source.path(".")),
        classArgs=section.take("classArgs", mapping),
    )


def _class_name(raw: object) -> str:
    name = text(raw)
    if not _CLASS_NAME.fullmatch(name):
        raise ValueError("must name a module and a class in it, such as my_tuner.MyTuner")
    return name


def _unknown(name: str, family: Catalogue) -> str:
    offered = family.names
    instead = f"use {' or '.join(offered)}, or your own class by className"
    if family.is_missing(name):
        return f"the {family.kind} {name} is not in this version yet; {instead}, or register one with this name"
    other = ASSESSORS if family is TUNERS else TUNERS
    if (found := other.look_up(name)) is not None:
        its_place = f"{other.kind}: {{name: {found.name}}}"
        return f"cannot find {family.kind} '{name}': it is an algorithm of {other.kind}. Write {its_place}; {instead}"
    guess = nearest(name, offered)
    return f"cannot find {family.kind} '{name}'; {f'did you mean {guess}?' if guess else instead}"


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


_OBJECTIVES, _CONSTRAINTS = "objectives", "constraints"
_EXAMPLE = "objectives: {accuracy: maximize, latency: minimize}"


def read_objectives(top: Section, source: Source) -> dict[str, object]:
    """The canonical fields that the config sets. Problems are noted in `source`."""
    objectives = _read(top, _OBJECTIVES, _direction, source)
    constraints = _read(top, _CONSTRAINTS, lambda raw: str(parse_constraint(raw)), source)
    if top.has(_CONSTRAINTS) and not top.has(_OBJECTIVES):
        top.refuse(_CONSTRAINTS, f"requires objectives, which is not set; add for example {_EXAMPLE}")
    return {name: found for name, found in ((_OBJECTIVES, objectives), (_CONSTRAINTS, constraints)) if found}


def _read(top: Section, name: str, parse: Callable[[object], str], source: Source) -> dict[str, str]:
    given = top.take(name, _not_empty) or {}
    found: dict[str, str] = {}
    for key, raw in given.items():
        try:
            found[_key(key)] = parse(raw)
        except ValueError as error:
            source.refuse((name, key), str(error))
    return found


def _not_empty(raw: object) -> dict[str, object]:
    given = mapping(raw)
    if not given:
        raise ValueError("is empty; name a key of the final results, or remove this field")
    return given


def _key(key: object) -> str:
    if not isinstance(key, str) or not key.strip():
        raise ValueError("must be a key of the final results")
    return key


def _direction(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"must be maximize or minimize, not {kind(raw)}")
    if raw not in tuple(OptimizeMode):
        raise ValueError(f"must be maximize or minimize, not {raw!r}")
    return raw


def judge_algorithms(top: Section, fields: Mapping[str, Any], source: Source) -> None:
    """Note a tuner that requires or does not support objectives, and an assessor together with objectives."""
    if source.stored:
        return
    place = "advisor" if top.has("advisor") else "tuner"
    tuner = fields.get("tuner") or {}
    known = TUNERS.look_up(tuner["name"]) if "name" in tuner else None
    if not top.has(_OBJECTIVES):
        if known is not None and known.needs_objectives:
            source.refuse((place, "name"), f"{known.name} searches for objectives; add for example {_EXAMPLE}")
        return
    if tuner:
        _judge_tuner(place, tuner, known, source)
    if top.has("assessor"):
        top.refuse("assessor", "uses one number, but objectives is set; remove this field")


def _judge_tuner(place: str, tuner: Mapping[str, Any], known: Algorithm | None, source: Source) -> None:
    if "className" in tuner or (known is not None and not known.with_objectives):
        name = tuner.get("name") or tuner["className"]
        choice = ", ".join(one.name for one in TUNERS.built_in if one.with_objectives)
        source.refuse((place,), f"{name} optimizes one number, but objectives is set; use one of {choice}")
    elif "optimize_mode" in (tuner.get("classArgs") or {}):
        source.refuse((place, "classArgs", "optimize_mode"), "objectives sets the directions; remove this argument")


@functools.cache
def arguments_model(algorithm: Algorithm) -> type[BaseModel]:
    """The model of an algorithm's `classArgs`. An argument that is null is not set."""
    ignored = {name: (OptimizeModeName | None, None) for name in algorithm.ignored}
    return _model(algorithm.name, algorithm.load(), ignored)


def check_arguments(algorithm: Algorithm, given: Mapping[str, object], path: Path, source: Source) -> None:
    """Checks the arguments that a config gives a built-in algorithm; what is wrong is noted in `source`."""
    model = arguments_model(algorithm)
    valid_settings(model, _known(given, model, path, algorithm.name, source), path, source)
    for key, sentence in algorithm.missing(given).items():
        source.refuse((*path, key), sentence)


def _model(name: str, made: Any, others: Mapping[str, Any]) -> type[BaseModel]:
    hints = get_type_hints(made.__init__, include_extras=True)
    parameters = inspect.signature(made).parameters.values()
    fields = {one.name: (_type(hints[one.name], name), _default(one)) for one in parameters}
    config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)
    model: type[BaseModel] = create_model(name, __config__=config, **{**others, **fields})
    return model


def _default(parameter: inspect.Parameter) -> object:
    """The default; None for required arguments, which `check_arguments` reports."""
    return None if parameter.default is inspect.Parameter.empty else parameter.default


def _type(hint: Any, name: str) -> Any:
    """The hint, with a model in place of a dataclass; null is always accepted."""
    group = next((part for part in get_args(hint) if isinstance(part, type) and is_dataclass(part)), None)
    return (hint if group is None else _model(name, group, {})) | None


def _known(
    given: Mapping[str, Any], model: type[BaseModel], path: Path, owner: str, source: Source
) -> dict[str, object]:
    """The arguments that the model has. Others are refused in `source`."""
    fields = fields_of(model)
    known: dict[str, object] = {}
    for key, value in given.items():
        place = (*path, key)
        inner = models_in(fields[key].annotation) if key in fields else []
        if key not in fields:
            source.refuse(place, _unknown_argument(key, list(fields), owner))
        else:
            is_group = inner and isinstance(value, Mapping)
            known[key] = _known(value, inner[0], place, owner, source) if is_group else value
    return known


def _unknown_argument(key: str, known: list[str], owner: str) -> str:
    guess = nearest(key, known)
    takes = f"its arguments: {', '.join(known)}" if known else "it takes no arguments"
    return f"{owner} does not have this argument; " + (f"did you mean {guess}?" if guess else takes)
