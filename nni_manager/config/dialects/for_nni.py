"""Adapts a converted config to NNI 3.0's own loader."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nni_manager.config.dialects.first_format import LOST
from nni_manager.config.dialects.first_format_paths import ENTRY, Found, split
from nni_manager.config.reading.document import Path
from nni_manager.config.reading.source import spell
from nni_manager.config.sections.experiment_model import marked
from nni_manager.platform_kit.section_model import FirstFormat

#: Fields of the top level that NNI 3.0 does not know and that change nothing here → why.
_IDLE: Mapping[str, str] = {
    "multiPhase": "it changes nothing, and NNI 3.0 does not know it",
    "deprecated": "it changes nothing, and NNI 3.0 does not know it",
}
#: Fields of the top level that only nni_manager has.
_OURS = tuple(marked("ours"))

#: A table, its section's path in the second format.
Sections = Iterable[tuple[FirstFormat, Path]]


def for_nni(config: Mapping[str, Any], sections: Sections) -> dict[str, Any]:
    """A copy of `config` without fields that NNI 3.0 refuses and with those that it requires."""
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
    """(field of the file, what becomes of it), of each field that NNI 3.0 or the second format does not know.

    `common`: fields of the top level → their place in the second format; `kept`: whether fields of ours are printed.
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


_KEEP = "; --all prints it for nni_manager, which goes by it"


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
