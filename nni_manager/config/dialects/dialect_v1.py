"""Converts NNI's first config format (``trainingServicePlatform``) to the second.

The result is read here, or printed for NNI 3.0. Each platform's folder lists the platform's fields
(`platform_kit.section_model`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nni_manager.config.dialects import dialect_v2, first_format
from nni_manager.config.dialects.first_format import LOST
from nni_manager.config.dialects.first_format_paths import (
    ENTRY,
    KINDS,
    Found,
    Translation,
    Tree,
    own_names,
    place,
    put,
    split,
)
from nni_manager.config.reading.document import Path, fold
from nni_manager.config.reading.scalars import kind
from nni_manager.config.reading.source import Source, spell
from nni_manager.config.sections.experiment_model import marked
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platform_kit.section_model import FirstFormat

PLATFORM = "trainingServicePlatform"
_SERVICE = "trainingService"
#: The platform's name if there are several; `_SEVERAL` lists them.
_HYBRID = "hybrid"
_SEVERAL = "hybridConfig.trainingServicePlatforms"
#: Fields of the top level that every file may have.
COMMON: Mapping[str, str] = {
    **{old: f"/{name}" for name, old in marked("firstFormat").items()},
    "multiThread": "/deprecated.multiThread",
}
_SHARED_STORAGE = "sharedStorage"
#: Sections that are read as a whole, not by a table.
_WHOLE = (*KINDS, _SHARED_STORAGE)


@dataclass(frozen=True, slots=True)
class _Service:
    """A platform that a file names, with its table and its section."""

    description: PlatformDescription
    table: FirstFormat
    #: Where the platform's section stands in the second format.
    path: Path
    section: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A file of the first format, converted to the second."""

    #: As a file of that format has it: values as they were written.
    values: dict[str, Any]
    #: Translates messages about `values` to messages about the file.
    translation: Translation
    found: list[Found]
    services: list[_Service]

    def printed(self, *, everything: bool) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """The file to print, and (field of the first format, outcome) for every field that changes or is lost.

        NNI 3.0 can load the result, unless `everything` that nni_manager uses is kept, or NNI 3.0 cannot run the
        experiment at all.
        """
        tables = [service.table for service in self.services]
        sections = [(service.table, service.path) for service in self.services]
        everything = everything or is_ours_alone(self.values, sections)
        values = without_idle(self.values) if everything else for_nni(self.values, sections)
        return values, list(losses(self.found, COMMON, tables, kept=everything))


def is_mine(values: Mapping[str, object]) -> bool:
    """Whether a file has the first format."""
    return any(fold(key) == fold(PLATFORM) for key in values)


def _is_list(values: Mapping[str, object]) -> bool:
    """Whether the file has a list of platforms, ``hybrid``; the list may have one entry."""
    return any(fold(key) == fold(PLATFORM) and str(value).casefold() == _HYBRID for key, value in values.items())


def top_names() -> dict[str, str]:
    """The fields at the top of a file of the first format → how the second format writes them."""
    names = {old: new.split(".")[0].removeprefix("/") for old, new in COMMON.items()}
    return names | {
        **dict.fromkeys(first_format.LOST, "nothing: remove it"),
        "trial": "trialCommand, trialCodeDirectory and trialGpuNumber",
        PLATFORM: "trainingService: {platform: …}",
    }


def read(values: Mapping[str, object], source: Source) -> ExperimentSpec:
    """The experiment that the values of a file describe. Raises ConfigInvalid with all problems."""
    conversion = convert(values, source)
    source.translate = conversion.translation
    return dialect_v2.read(conversion.values, source)


def convert(values: Mapping[str, object], source: Source) -> Conversion:
    """The file as a canonical config.

    `source` collects errors, and warnings about fields without effect. Raises ConfigInvalid if the platform is unknown.
    """
    services = _services(values, source)
    tables = [service.table for service in services]
    for table in tables:
        for above, names in own_names(table.fields).items():
            if above:  # the top level is judged as a whole, see `experiment_file`
                source.note_foreign_names(above, names)
    found = _tree([*tables, *_not_listed(services, is_list=_is_list(values))]).read(values, source)
    config: dict[str, Any] = {}
    _put(config, config, COMMON, found)
    _read_whole(config, found, source)
    for service in services:
        service.section["platform"] = service.description.name
        _put(config, service.section, service.table.fields, found)
        service.table.complete(service.section, config)
    first_format.check_first_format(values, config, found, tables, source)
    sections = [service.section for service in services]
    config[_SERVICE] = sections if len(sections) > 1 else sections[0]
    return Conversion(values=config, translation=_translation(services), found=found, services=services)


def _services(values: Mapping[str, object], source: Source) -> list[_Service]:
    """The platforms that a file names. Raises ConfigInvalid."""
    key = next(key for key in values if fold(key) == fold(PLATFORM))
    names = _listed(values, source) if _is_list(values) else {(key,): values[key]}
    found = [_find(path, name, source) for path, name in names.items()]
    source.check()
    several = len(found) > 1
    return [
        _Service(one, one.first_format or FirstFormat(fields={}), (_SERVICE, number) if several else (_SERVICE,))
        for number, one in enumerate(filter(None, found))
    ]


def _listed(values: Mapping[str, object], source: Source) -> dict[Path, object]:
    section, name = _SEVERAL.split(".")
    listed = values.get(section)
    names = listed.get(name) if isinstance(listed, dict) else None
    if not isinstance(names, list) or not names:
        source.refuse((section, name), f"is required with {PLATFORM}: {_HYBRID}; list at least one platform")
        return {}
    return {(section, name, number): one for number, one in enumerate(names)}


def _find(path: Path, name: object, source: Source) -> PlatformDescription | None:
    try:
        found = registry.find(name if isinstance(name, str) else "")
    except InvalidInput as error:
        source.refuse(
            path, str(error) if isinstance(name, str) else f"must be the name of a platform, not {kind(name)}"
        )
        return None
    if found.first_format is None:
        source.refuse(path, f"{found.name} does not exist in NNI's first format; write {_SERVICE}: {{platform: …}}")
    return found


def _not_listed(services: list[_Service], *, is_list: bool) -> list[FirstFormat]:
    """The tables of platforms that the file does not list: their sections may stay in the file."""
    if not is_list:
        return []
    names = [service.description.name for service in services]
    return [one.first_format for one in registry.descriptions() if one.first_format and one.name not in names]


def _tree(tables: Iterable[FirstFormat]) -> Tree:
    theirs = (pattern for table in tables for pattern in (*table.fields, *table.dropped))
    return Tree([*COMMON, *first_format.LOST, *_WHOLE, PLATFORM, _SEVERAL, *theirs])


def _put(config: dict[str, Any], section: dict[str, Any], fields: Mapping[str, str], found: list[Found]) -> None:
    """Copy the found values to the table's targets; of two fields with the same target, the table's first wins."""
    for pattern, target in fields.items():
        for one in (one for one in found if one.pattern == pattern):
            where = config if target.startswith("/") else section
            put(where, place(target.removeprefix("/"), one.positions), one.value)


def _read_whole(config: dict[str, Any], found: list[Found], source: Source) -> None:
    for one in found:
        if one.pattern in KINDS:
            section, top = first_format.convert_algorithm(one.value, one.pattern, source)
            if section.keys() & {"name", "className"}:
                config[one.pattern] = section
            else:
                source.expect_no_more((one.pattern,))
            for name, value in top.items():
                config[name] = {**config.get(name, {}), **value} if isinstance(value, dict) else value
        elif one.pattern == _SHARED_STORAGE:
            config[one.pattern] = one.value


def _translation(services: list[_Service]) -> Translation:
    algorithms = [((), first_format.fields(noun)) for noun in KINDS]
    others = {PLATFORM: f"/{_SERVICE}.platform", "searchSpacePath": "/searchSpace"}
    return Translation(
        [((), COMMON), ((), others), *algorithms, *((service.path, service.table.fields) for service in services)]
    )


#: Fields of the top level that NNI 3.0 does not know and that change nothing here → why.
_IDLE: Mapping[str, str] = {
    "multiPhase": "it changes nothing, and NNI 3.0 does not know it",
    "deprecated": "NNI 3.0 does not know it",
}
#: Fields of the top level that only nni_manager has.
_OURS = tuple(marked("ours"))

#: A table, its section's path in the second format.
Sections = Iterable[tuple[FirstFormat, Path]]


def for_nni(config: Mapping[str, Any], sections: Sections) -> dict[str, Any]:
    """A copy of `config` without the fields that NNI 3.0 refuses and with those that it requires."""
    kept = copy.deepcopy({name: value for name, value in config.items() if name not in (*_IDLE, *_OURS)})
    for table, path in sections:
        section = _at(kept, path)
        for pattern in table.ours:
            _remove(section, split(pattern))
        table.complete_for_nni(section, kept)
    return kept


def without_idle(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `config` without fields that have no effect."""
    return {name: value for name, value in config.items() if name not in _IDLE}


def is_ours_alone(config: Mapping[str, Any], sections: Sections) -> bool:
    """Whether NNI 3.0 could not run this config even without the fields that it does not know."""
    return any(name in _at(config, path) for table, path in sections for name in table.only_here)


def losses(
    found: Iterable[Found], common: Mapping[str, str], tables: list[FirstFormat], *, kept: bool
) -> Iterator[tuple[str, str]]:
    """(field of the file, outcome) for each field that NNI 3.0 or the second format does not know.

    `common`: top-level fields → their place in the second format; `kept`: whether nni_manager's fields are printed.
    """
    lost = {**LOST, **{name: why for table in tables for name, why in table.dropped.items()}}
    ours = {*_OURS, *(f for table in tables for f in (*table.ours, *table.only_here))}
    targets = {**common, **{name: target for table in tables for name, target in table.fields.items()}}
    for one in found:
        target = targets.get(one.pattern, "").removeprefix("/")
        idle = _IDLE.get(target.partition(".")[0])
        if why := lost.get(one.pattern, idle):
            yield spell(one.path), f"is left out: {why}"
        elif target in ours:
            became, how = ("is printed as", "") if kept else ("is left out:", _KEEP)
            yield spell(one.path), f"{became} {target}, which NNI 3.0 does not know{how}"


_KEEP = "; --all keeps it for nni_manager, which uses it"


def _at(config: Any, path: Path) -> Any:
    for step in path:
        config = config[step]
    return config


def _remove(node: Any, pattern: list[str]) -> None:
    step, *rest = pattern
    if step == ENTRY:
        for item in node if isinstance(node, list) else ():
            _remove(item, rest)
    elif isinstance(node, dict) and rest:
        _remove(node.get(step), rest)
    elif isinstance(node, dict):
        node.pop(step, None)
