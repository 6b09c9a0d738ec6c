"""A parsed config text: plain values, each with its line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

#: A place in a config: keys of mappings and 0-based positions in lists.
Path = tuple[str | int, ...]

MAX_DEPTH = 60
#: Maximum number of values in a file, aliases expanded; and of values that are examined to count them.
MAX_VALUES = 200_000


class Unreadable(Exception):
    """The text cannot be parsed as YAML. `line` is 1-based, 0 when unknown."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class Patience:
    """A time limit for reading a text, in seconds. Any thread may call `end`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._over_s = time.monotonic() + seconds
        self._callbacks: list[Callable[[], object]] = []

    def on_end(self, callback: Callable[[], object]) -> None:
        """Register a callback for the end of the limit; it may be called twice, and at once if the limit is over."""
        self._callbacks.append(callback)
        if self._over_s == 0.0:
            callback()

    def end(self) -> None:
        """End the time now: the result is not needed any more."""
        self._over_s = 0.0
        for callback in self._callbacks:
            callback()

    def check(self, line: int) -> None:
        """Raise Unreadable when the time is over. `line`: the line being read, 1-based."""
        if time.monotonic() > self._over_s:
            raise Unreadable(f"takes longer than {self._seconds:g} s to read; make it smaller", line)


#: Time limit of the current call; None: unlimited.
patience: ContextVar[Patience | None] = ContextVar("patience", default=None)


@dataclass(slots=True)
class Node:
    """A value, with the line of its key, or in a list its own line."""

    value: Any
    line: int
    children: dict[str, Node] | list[Node] | None = None
    #: How many values the node stands for, itself included.
    size: int = 1


@dataclass
class Document:
    """A parsed text, and the faults that did not stop the parsing: path, line, sentence."""

    root: Node
    faults: list[tuple[Path, int, str]] = field(default_factory=list)

    @cached_property
    def top(self) -> Mapping[str, Any]:
        """The values at the top of the file by folded name; empty if the file is not a mapping."""
        values = self.root.value if isinstance(self.root.value, dict) else {}
        return {fold(name): value for name, value in values.items()}

    def locate(self, path: Path) -> tuple[Path, int]:
        """The path as the user spelled it, and the line of the deepest part of it that exists."""
        node, spelled = self.root, []
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            key, node = found
            spelled.append(key)
        return (*spelled, *path[len(spelled) :]), node.line


def fold(name: str) -> str:
    """The name without underscores and in lower case, for comparison."""
    return name.replace("_", "").lower()


def _child(node: Node, step: str | int) -> tuple[str | int, Node] | None:
    if isinstance(node.children, list):
        return (step, node.children[step]) if isinstance(step, int) and step < len(node.children) else None
    children = node.children or {}
    if step in children:
        return step, children[str(step)]
    return next(((key, child) for key, child in children.items() if fold(key) == fold(str(step))), None)
