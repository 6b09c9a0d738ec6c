"""The tables of NNI's first config format: path in a file → path in the second format.

Paths are dotted; ``[]`` stands for every entry of a list. See `platform_kit.section_model`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nni_manager.config.reading.document import Path
from nni_manager.config.reading.scalars import kind
from nni_manager.config.reading.source import Source, spell
from nni_manager.config.sections.section import Section

ENTRY = "[]"
#: The sections of algorithms.
KINDS = ("tuner", "assessor", "advisor")


@dataclass(frozen=True, slots=True)
class Found:
    """A value that was found in a file."""

    #: The value's path in a table, ``machineList[].ip``.
    pattern: str
    #: The value's path in the file, ``("machineList", 0, "ip")``.
    path: Path
    value: Any

    @property
    def positions(self) -> tuple[int, ...]:
        return tuple(step for step in self.path if isinstance(step, int))


class Tree:
    """The paths that a file may have, as nested mappings with ``None`` at the leaves."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.root: dict[str, Any] = {}
        for pattern in patterns:
            node = self.root
            *above, last = split(pattern)
            for step in above:
                node = node.setdefault(step, {})
            node.setdefault(last, None)

    def read(self, values: Mapping[str, object], source: Source) -> list[Found]:
        """All values that are set. Unknown fields are refused in `source`."""
        return list(self._read_mapping(values, self.root, (), "", source))

    def _read_mapping(
        self, values: Mapping[str, object], node: Mapping[str, Any], path: Path, pattern: str, source: Source
    ) -> Iterable[Found]:
        section = Section(values, node, path, source)
        for name, inner in node.items():
            if section.has(name):
                dotted = f"{pattern}.{name}" if pattern else name
                yield from self._read(section.raw(name), inner, (*path, name), dotted, source)

    def _read(self, raw: object, node: Any, path: Path, pattern: str, source: Source) -> Iterable[Found]:
        if node is None:
            yield Found(pattern, path, raw)
        elif ENTRY in node:
            yield from self._read_list(raw, node[ENTRY], path, pattern + ENTRY, source)
        elif isinstance(raw, dict):
            yield from self._read_mapping(raw, node, path, pattern, source)
        else:
            source.refuse(path, f"must be a mapping of {', '.join(node)}, not {kind(raw)}")

    def _read_list(self, raw: object, node: Any, path: Path, pattern: str, source: Source) -> Iterable[Found]:
        if not isinstance(raw, list) or not raw:
            source.refuse(path, "is an empty list" if raw == [] else f"must be a list, not {kind(raw)}")
            return
        for number, item in enumerate(raw):
            if item == {}:
                source.refuse((*path, number), "is empty; remove it, or set a value")
            yield from self._read(item, node, (*path, number), pattern, source)


def split(pattern: str) -> list[str]:
    """The steps of a dotted path: ``machineList[].ip`` → ``["machineList", "[]", "ip"]``."""
    return pattern.replace(ENTRY, f".{ENTRY}").split(".")


def place(target: str, positions: tuple[int, ...]) -> Path:
    """The path in the second format that `target` stands for, with positions in place of its ``[]``."""
    left = iter(positions)
    return tuple(next(left) if step == ENTRY else step for step in split(target))


def put(config: dict[str, Any], path: Path, value: object) -> None:
    """Set a value unless one is set; create the lists and mappings above it."""
    node: Any = config
    for step, following in itertools.pairwise(path):
        node = _enter(node, step, [] if isinstance(following, int) else {})
    last = path[-1]
    if isinstance(node, dict):
        node.setdefault(str(last), value)


def _enter(node: Any, step: str | int, empty: object) -> Any:
    if isinstance(node, dict):
        return node.setdefault(str(step), empty)
    while len(node) <= int(step):
        node.append({})
    return node[int(step)]


def own_names(fields: Mapping[str, str]) -> dict[Path, dict[str, str]]:
    """The second format's names of fields → the first format's, where they differ.

    By the path of their section in the first format.
    """
    return _other_names((old, new.removeprefix("/")) for old, new in fields.items())


def foreign_names(fields: Mapping[str, str]) -> dict[Path, dict[str, str]]:
    """The first format's names of fields → the second format's, where they differ.

    By the path of their section in the second format.
    """
    return _other_names((new, old) for old, new in fields.items() if not new.startswith("/"))


def _other_names(pairs: Iterable[tuple[str, str]]) -> dict[Path, dict[str, str]]:
    """The names of fields, by section in the first of two formats. `pairs`: a field's path in both."""
    names: dict[Path, dict[str, str]] = {}
    for here, there in pairs:
        *above, last = split(here)
        other = split(there)[-1]
        if other != last:
            parent = tuple(step for step in above if step != ENTRY)
            names.setdefault(parent, {}).setdefault(other, last)
    return names


class Translation:
    """Translates messages from the fields of the second format back to those of the file."""

    def __init__(self, tables: Iterable[tuple[Path, Mapping[str, str]]]) -> None:
        """`tables`: the path of a section in the second format, and its table."""
        self._fields: dict[str, list[str]] = {}
        for above, fields in tables:
            prefix = spell(above)
            for old, new in fields.items():
                target = new[1:] if new.startswith("/") else f"{prefix}.{new}" if prefix else new
                self._fields.setdefault(target, []).append(old)
                if new.startswith("/") and prefix:  # a platform's section may have fields of the top level
                    self._fields.setdefault(f"{prefix}.{target}", []).append(old)
        words: dict[str, str] = {}
        for new, olds in self._fields.items():
            if split(new)[0] not in KINDS:  # these have fields of the same names
                words.setdefault(split(new)[-1], olds[0])
        self._words = {new: old for new, old in words.items() if re.search("[A-Z]", new) and new != old}
        self._pattern = re.compile(rf"\b({'|'.join(map(re.escape, self._words))})\b(?!:)")

    def __call__(self, path: Path, message: str) -> tuple[Path, str]:
        return self._path(path), self._pattern.sub(lambda match: self._words[match[1]], message)

    def _path(self, path: Path) -> Path:
        for end in range(len(path), 0, -1):
            for spelled, positions in _patterns(path[:end]):
                if spelled in self._fields:
                    return (*_place(self._fields[spelled][0], positions), *path[end:])
                inside = [
                    olds[0] for new, olds in self._fields.items() if new.startswith((f"{spelled}.", f"{spelled}["))
                ]
                if inside and (above := _above(inside)):
                    return (*_place(above, positions), *path[end:])
        return path


def _patterns(path: Path) -> Iterable[tuple[str, tuple[int, ...]]]:
    """The patterns that a path may stand for, each with the positions for its ``[]``.

    The first positions of a path may be part of a table's place; patterns that keep most of them come first.
    """
    positions = tuple(step for step in path if isinstance(step, int))
    for kept in range(len(positions), -1, -1):
        numbers = iter([*(f"[{position}]" for position in positions[:kept]), *[ENTRY] * (len(positions) - kept)])
        steps = (next(numbers) if isinstance(step, int) else f".{step}" for step in path)
        yield "".join(steps).removeprefix("."), positions[kept:]


def _place(pattern: str, positions: tuple[int, ...]) -> Path:
    found: list[str | int] = []
    left = list(positions)
    for step in split(pattern):
        if step != ENTRY:
            found.append(step)
        elif left:
            found.append(left.pop(0))
        else:
            break
    return tuple(found)


def _above(patterns: list[str]) -> str:
    """The longest path that all patterns begin with, their last steps left out."""
    steps = [split(pattern)[:-1] or split(pattern) for pattern in patterns]
    shared = [step[0] for step in zip(*steps, strict=False) if len(set(step)) == 1]
    return ".".join(shared).replace(f".{ENTRY}", ENTRY)
