"""The sections `tuner`, `assessor` and `advisor` → their canonical form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path as FilePath

from nni_manager.assessors.registry import CATALOGUE as ASSESSORS
from nni_manager.config import registered_algorithms
from nni_manager.config.algorithms import check_arguments
from nni_manager.config.reading import placeholders
from nni_manager.config.reading.document import Path
from nni_manager.config.reading.scalars import kind, mapping, text
from nni_manager.config.reading.source import Source
from nni_manager.config.registered_algorithms import Registered
from nni_manager.config.sections.section import Section, nearest
from nni_manager.domain.algorithm import Catalogue
from nni_manager.domain.metrics import must_say
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
_CLASS_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def read_algorithm(raw: object, path: Path, family: Catalogue, source: Source) -> dict[str, object]:
    """The canonical section of an algorithm; what is wrong with it is noted in `source`."""
    if not isinstance(raw, dict):
        source.refuse(path, f"must be a mapping such as {{name: {family.names[0]}}}, not {kind(raw)}")
        return {}
    source.note_foreign_names(path, FIRST_FORMAT)
    section = Section(raw, _FIELDS, path, source)
    for name in ("name", "className", "codeDirectory") if not source.stored else ():
        section.judge(name, placeholders.refuse_your)
    if section.has("name") == section.has("className"):
        which = "both are set; keep one" if section.has("name") else "none is set"
        source.refuse(path, f"needs either name (a built-in {family.kind}) or className (your own); {which}")
        return {}
    return _built_in(section, family, source) if section.has("name") else _user_class(section, source)


def _built_in(section: Section, family: Catalogue, source: Source) -> dict[str, object]:
    if section.has("codeDirectory"):
        section.refuse("codeDirectory", f"belongs to className; a built-in {family.kind} has none, remove it")
    name = section.take("name", text)
    arguments = section.take("classArgs", mapping)
    if name is None:
        return _present(classArgs=arguments)
    if arguments is not None and source.translate is not None and not _says_direction(arguments) and must_say(name):
        section.refuse("classArgs", f"NNI takes no arguments of {name} without optimize_mode; add it")
    if family.look_up(name) is None and (other := _other_class(name, family, arguments or {}, section, source)):
        return _present(**other)
    name = _check_name(name, family, section, source, arguments or {})
    if arguments and name in family.names:
        arguments = _present(**arguments)  # null: not set
    return _present(name=name, classArgs=arguments)


def _says_direction(arguments: Mapping[str, object]) -> bool:
    return arguments.get("optimize_mode") is not None


def _other_class(
    name: str, family: Catalogue, arguments: Mapping[str, object], section: Section, source: Source
) -> dict[str, object] | None:
    """The section with a class in place of the name: a registered one, or NNI's own. None: the name is another one.

    The experiment then does not depend on later changes of the registration. Raises InvalidInput.
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
        # in a stored config: a registered class that is installed has no folder
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
        return f"the {family.kind} {name} is not in this version yet; {instead}, or register one by this name"
    other = ASSESSORS if family is TUNERS else TUNERS
    if (found := other.look_up(name)) is not None:
        its_place = f"{other.kind}: {{name: {found.name}}}"
        return f"there is no {family.kind} '{name}', it belongs to {other.kind}: write {its_place}; {instead}"
    guess = nearest(name, offered)
    return f"there is no {family.kind} '{name}'; {f'did you mean {guess}?' if guess else instead}"


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
