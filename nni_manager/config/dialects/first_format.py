"""The sections `tuner`, `assessor` and `advisor` of NNI's first format → those of the second."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nni_manager.config.dialects.first_format_paths import ENTRY, Found, split
from nni_manager.config.reading.document import Path
from nni_manager.config.reading.scalars import flag, kind, text
from nni_manager.config.reading.source import Source, steps
from nni_manager.config.sections.section import Section
from nni_manager.platform_kit.section_model import FirstFormat

_CLASS = ("codeDir", "classFileName", "className")
_INTERMEDIATE_RESULTS = (
    "has no effect, as in NNI 3.0: the last intermediate result of a trial that is stopped early does not become its"
    " final one"
)
_OTHERS = ("classArgs", "gpuIndices", "includeIntermediateResults")


def name_field(noun: str) -> str:
    """The field that names a built-in algorithm, such as ``builtinTunerName``."""
    return f"builtin{noun.title()}Name"


def names(noun: str) -> tuple[str, ...]:
    """The fields that the section of an algorithm may have."""
    return (name_field(noun), *_CLASS, *_OTHERS)


def fields(noun: str) -> dict[str, str]:
    """The fields of an algorithm for messages: path in the file → path in the second format."""
    places = {
        name_field(noun): "name",
        "className": "className",
        "codeDir": "codeDirectory",
        "classArgs": "classArgs",
    }
    whole = {f"{noun}.{old}": f"/{noun}.{new}" for old, new in places.items()}
    return whole | ({} if noun == "assessor" else {f"{noun}.gpuIndices": "/tunerGpuIndices"})


def convert_algorithm(raw: object, noun: str, source: Source) -> tuple[dict[str, Any], dict[str, Any]]:
    """The section of an algorithm in the second format, and its fields that belong to the top level there."""
    path: Path = (noun,)
    if not isinstance(raw, dict):
        source.refuse(path, f"must be a mapping such as {{{name_field(noun)}: …}}, not {kind(raw)}")
        return {}, {}
    source.note_foreign_names(path, {"name": name_field(noun), "codeDirectory": "codeDir"})
    section = Section(raw, names(noun), path, source)
    top: dict[str, Any] = {}
    if section.has("gpuIndices"):
        top["tunerGpuIndices"] = section.raw("gpuIndices")
    if section.take("includeIntermediateResults", flag):
        source.warn((*path, "includeIntermediateResults"), "NO_EFFECT", _INTERMEDIATE_RESULTS)
    arguments = {"classArgs": section.raw("classArgs")} if section.has("classArgs") else {}
    return _which(section, noun, source) | arguments, top


def _which(section: Section, noun: str, source: Source) -> dict[str, Any]:
    name, given = name_field(noun), [one for one in _CLASS if section.has(one)]
    if section.has(name):
        for one in given:
            section.refuse(one, f"belongs to your own class, and {name} is set, too; keep one")
        return {"name": section.raw(name)}
    missing = [one for one in _CLASS if one not in given]
    if not given:
        section.require(name, f"name a built-in {noun}, or set {', '.join(_CLASS)} for your own")
    elif missing:
        for one in missing:
            section.require(one, f"your own class requires {', '.join(_CLASS)}")
    return {} if missing else _class(section, source)


def _class(section: Section, source: Source) -> dict[str, Any]:
    directory, class_name = section.take("codeDir", text), section.take("className", text)
    file = section.take("classFileName", lambda raw: _module_file(raw, directory, source))
    if directory is None or class_name is None or file is None:
        return {}
    return {"className": f"{file.removesuffix('.py').replace('/', '.')}.{class_name}", "codeDirectory": directory}


def _module_file(raw: object, directory: str | None, source: Source) -> str:
    name = text(raw)
    if not name.endswith(".py"):
        raise ValueError("must name a Python file that ends with .py")
    path = os.path.join(source.path(directory or "."), name)
    if directory is not None and not source.elsewhere and not os.path.isfile(path):
        raise ValueError(f"cannot find file {path}; relative paths start at {source.directory}")
    return name


#: Fields without a counterpart in the second format → why nothing is lost.
LOST: Mapping[str, str] = {
    "authorName": "the second format has no author",
    "description": "the second format has no description",
}
#: Tuners without a search space.
_WITHOUT_SPACE = ("networkmorphism",)


def check_first_format(
    file: Mapping[str, Any], config: dict[str, Any], found: list[Found], tables: list[FirstFormat], source: Source
) -> None:
    """Check a file of the first format: note problems in `source` and complete `config`."""
    _check_algorithms(config, source)
    for table in tables:
        for path in _missing(table.required, file):
            source.refuse(path, "is required and not set; add it")
        for name, sentence in table.faults(file):
            source.refuse(steps(name), sentence)
        for one in found:
            if one.pattern in table.dropped:
                source.warn(one.path, "NO_EFFECT", f"has no effect: {table.dropped[one.pattern]}")


def _check_algorithms(config: dict[str, Any], source: Source) -> None:
    if "advisor" in config:
        for other in ("tuner", "assessor"):
            if other in config:
                source.refuse(
                    (other,), "advisor is set, too, and is both tuner and assessor; keep either advisor or the others"
                )
        return
    if "tuner" not in config and "optimizeMode" not in config:
        advice = "add for example tuner: {builtinTunerName: TPE}, or, for Auto, optimizeMode: maximize or minimize"
        source.refuse(("tuner",), f"is required and not set; {advice}")
    tuner = config.get("tuner") or {}
    if "searchSpaceFile" not in config:
        if "className" in tuner or (str(tuner.get("name", "")).lower() in _WITHOUT_SPACE):
            config["searchSpace"] = {}
        else:
            source.refuse(("searchSpacePath",), "is required and not set; name a file with a search space")


def _missing(required: Iterable[str], file: Mapping[str, Any]) -> Iterator[Path]:
    """The required paths that are missing, without those inside a missing section."""
    if file.get("trial") is None:
        yield ("trial",)
    for pattern in required:
        yield from _missing_in(file, split(pattern), ())


def _missing_in(node: Any, pattern: list[str], path: Path) -> Iterator[Path]:
    step, *rest = pattern
    if step == ENTRY:
        for number, item in enumerate(node if isinstance(node, list) else ()):
            yield from _missing_in(item, rest, (*path, number))
    elif isinstance(node, dict):
        inner = node.get(step)
        if inner is None and not rest:
            yield (*path, step)
        elif inner is not None and rest:
            yield from _missing_in(inner, rest, (*path, step))
