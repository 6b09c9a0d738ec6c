"""`tuner`, `assessor` and `advisor` of NNI's first format → the second's."""

from __future__ import annotations

import os
from typing import Any

from nni_manager.config.document import Path
from nni_manager.config.scalars import flag, kind, text
from nni_manager.config.section import Section
from nni_manager.config.source import Source

_CLASS = ("codeDir", "classFileName", "className")
_OTHERS = ("classArgs", "gpuIndices", "includeIntermediateResults")


def name_field(noun: str) -> str:
    """``builtinTunerName`` and the like."""
    return f"builtin{noun.title()}Name"


def fields(noun: str) -> dict[str, str]:
    """Path in the file → path in the second format, of what a message may be about."""
    names = {
        name_field(noun): "name", "className": "className", "codeDir": "codeDirectory", "classArgs": "classArgs",
    }  # fmt: skip
    whole = {f"{noun}.{old}": f"/{noun}.{new}" for old, new in names.items()}
    return whole | ({} if noun == "assessor" else {f"{noun}.gpuIndices": "/tunerGpuIndices"})


def convert(raw: object, noun: str, source: Source) -> tuple[dict[str, Any], dict[str, Any]]:
    """The section of the second format, and what of it stands at the config's top level."""
    path: Path = (noun,)
    if not isinstance(raw, dict):
        source.refuse(path, f"must be a mapping such as {{{name_field(noun)}: …}}, not {kind(raw)}")
        return {}, {}
    source.note_foreign_names(path, {"name": name_field(noun), "codeDirectory": "codeDir"})
    section = Section(raw, (name_field(noun), *_CLASS, *_OTHERS), path, source)
    top: dict[str, Any] = {}
    if section.has("gpuIndices"):
        top["tunerGpuIndices"] = section.raw("gpuIndices")
    if section.take("includeIntermediateResults", flag) is not None:
        top["deprecated"] = {"includeIntermediateResults": section.raw("includeIntermediateResults")}
    arguments = {"classArgs": section.raw("classArgs")} if section.has("classArgs") else {}
    return _which(section, noun, source) | arguments, top


def _which(section: Section, noun: str, source: Source) -> dict[str, Any]:
    name, given = name_field(noun), [one for one in _CLASS if section.has(one)]
    if section.has(name):
        for one in given:
            section.refuse(one, f"belongs to a class of your own, and {name} is given too; keep one")
        return {"name": section.raw(name)}
    missing = [one for one in _CLASS if one not in given]
    if not given:
        section.require(name, f"name a built-in {noun}, or give {', '.join(_CLASS)} of your own")
    elif missing:
        for one in missing:
            section.require(one, f"a class of your own has {', '.join(_CLASS)}")
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
        raise ValueError("must name a Python file, with .py at its end")
    path = os.path.join(source.path(directory or "."), name)
    if directory is not None and not source.elsewhere and not os.path.isfile(path):
        raise ValueError(f"there is no file {path}; relative paths start at {source.directory}")
    return name
