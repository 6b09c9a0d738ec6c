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
    if name is not None and (registered := _registered(name, family, source)) is not None:
        return _present(**_of_registered(registered, arguments or {}, section))
    if name is not None:
        name = _check_name(name, family, section, source, arguments or {})
    if arguments and name in family.names:
        arguments = _present(**arguments)  # null: not set
    return _present(name=name, classArgs=arguments)


def _registered(name: str, family: Catalogue, source: Source) -> Registered | None:
    """The registered algorithm of that name; None: unknown, or the name of a built-in one.

    Raises InvalidInput.
    """
    if not source.data_directory or family.look_up(name):
        return None
    return registered_algorithms.find(FilePath(source.data_directory), family.kind, name)


def _of_registered(registered: Registered, arguments: Mapping[str, object], section: Section) -> dict[str, object]:
    """The section of a registered algorithm, with its class in place of its name.

    The experiment then does not depend on later changes of the registration.
    """
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
        section.refuse("name", _no_advisor(name) if section.path == ("advisor",) else _unknown(name, family))
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


def _no_advisor(name: str) -> str:
    """The refusal of an advisor's name. It offers no user class: an advisor of that kind is not supported either."""
    return (
        f"there is no advisor {name} in this version; remove advisor, and write for example tuner: {{name: TPE}}"
        " and, to end bad trials early, assessor: {name: Medianstop}"
    )


def _unknown(name: str, family: Catalogue) -> str:
    offered = family.names
    instead = f"use {' or '.join(offered)}, or your own class by className"
    if family.is_missing(name):
        return f"the {family.kind} {name} is not in this version yet; {instead}"
    other = ASSESSORS if family is TUNERS else TUNERS
    if (found := other.look_up(name)) is not None:
        its_place = f"{other.kind}: {{name: {found.name}}}"
        return f"there is no {family.kind} '{name}', it belongs to {other.kind}: write {its_place}; {instead}"
    guess = nearest(name, offered)
    return f"there is no {family.kind} '{name}'; {f'did you mean {guess}?' if guess else instead}"


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
