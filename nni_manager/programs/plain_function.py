"""Serializes a function of code and plain values, so that trials can read it quickly and without a package.

Reading cloudpickle's format takes a trial four times as long as starting Python. So `marshal` writes functions whose
globals, defaults and closure are numbers, texts, containers of these, installed modules and their content, or functions
of the same kind. They require the same minor version of Python. `trial_runner/stand_in/nni_call.py` reads the format:

    (entry, imports, spaces, cells, functions)

`entry`: number of the function; `imports`: modules; `spaces`: dicts of globals; `cells`: values; `functions`: (code,
number of its space, name, defaults or None, keyword defaults or None, numbers of its cells). Each value is
``("value", plain)``, ``("module", name)``, ``("name", module, qualified name)`` or ``("function", number)``.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

_SCALARS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_MUTABLE = (list, dict, set)
_CONTAINERS = (tuple, frozenset, *_MUTABLE)


class _NotPlain(Exception):
    """The function has parts that only cloudpickle can write."""


def dumps(function: object, is_there: Callable[[str], bool]) -> bytes | None:
    """The function as bytes; None if cloudpickle must write it. `is_there`: whether trials find a module by name."""
    writer = _Writer(is_there)
    try:
        entry = writer.number_of(function)
        writer.finish()
        return marshal.dumps((entry, sorted(writer.imports), writer.spaces, writer.cells, writer.functions))
    except (_NotPlain, ValueError, RecursionError):
        return None


class _Writer:
    """The parts of a function and of those that it uses. Each is written once, so shared parts stay shared."""

    def __init__(self, is_there: Callable[[str], bool]) -> None:
        self._is_there = is_there
        self.imports: set[str] = set()
        self.spaces: list[dict[str, Any]] = []
        self.cells: list[Any] = []
        self.functions: list[Any] = []
        #: id → its number. What has an id here is kept alive by the function that is written.
        self._functions: dict[int, int] = {}
        self._spaces: dict[int, int] = {}
        self._cells: dict[int, int] = {}
        self._mutable: set[int] = set()
        self._waiting: list[FunctionType] = []

    def number_of(self, function: object) -> int:
        if type(function) is not FunctionType or function.__dict__:
            raise _NotPlain
        if id(function) not in self._functions:
            self._functions[id(function)] = len(self.functions)
            self.functions.append(None)
            self._waiting.append(function)
        return self._functions[id(function)]

    def finish(self) -> None:
        """Write the waiting functions, which may add others."""
        while self._waiting:
            function = self._waiting.pop()
            self.functions[self._functions[id(function)]] = self._described(function)

    def _described(self, function: FunctionType) -> tuple[Any, ...]:
        defaults, keywords = function.__defaults__, function.__kwdefaults__
        return (
            function.__code__,
            self._space(function),
            function.__name__,
            None if defaults is None else tuple(map(self._value, defaults)),
            None if keywords is None else {name: self._value(value) for name, value in keywords.items()},
            tuple(map(self._cell, function.__closure__ or ())),
        )

    def _space(self, function: FunctionType) -> int:
        known = function.__globals__
        if id(known) not in self._spaces:
            self._spaces[id(known)] = len(self.spaces)
            self.spaces.append({"__name__": ("value", known.get("__name__", "__main__"))})
        number = self._spaces[id(known)]
        space, used = self.spaces[number], set(_names(function.__code__))
        for name in used & known.keys() - space.keys():
            space[name] = None  # it may use itself
            space[name] = self._value(known[name])
        self.imports.update(_submodules((known[name] for name in used & known.keys()), used))
        return number

    def _cell(self, cell: CellType) -> int:
        if id(cell) not in self._cells:
            self._cells[id(cell)] = len(self.cells)
            self.cells.append(None)
            self.cells[self._cells[id(cell)]] = self._value(cell.cell_contents)  # ValueError: it is empty
        return self._cells[id(cell)]

    def _value(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, ModuleType):
            return ("module", self._module(value.__name__, value))
        if isinstance(value, (type, FunctionType, BuiltinFunctionType)) and (named := self._named(value)):
            return named
        if type(value) is FunctionType:
            return ("function", self.number_of(value))
        self._require_plain(value)
        return ("value", value)

    def _module(self, name: str, module: ModuleType) -> str:
        if sys.modules.get(name) is not module or not self._is_there(name):
            raise _NotPlain
        self.imports.add(name)
        return name

    def _named(self, value: Any) -> tuple[str, str, str] | None:
        """The reference to an object that an available module defines by its own name, or None."""
        module, name = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", "")
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not value or not self._is_there(module):
            return None
        self.imports.add(module)
        return ("name", module, name)

    def _require_plain(self, value: Any) -> None:
        if type(value) in _MUTABLE:
            if id(value) in self._mutable:
                raise _NotPlain  # two names of one list would become two lists
            self._mutable.add(id(value))
        elif type(value) not in (*_SCALARS, *_CONTAINERS):
            raise _NotPlain
        if type(value) in _CONTAINERS:
            inner: Iterable[Any] = (*value, *value.values()) if type(value) is dict else value
            for one in inner:
                self._require_plain(one)


def _names(code: CodeType) -> Iterator[str]:
    """Names of globals and attributes that code uses, and the code in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _submodules(values: Iterable[Any], used: set[str]) -> Iterator[str]:
    """Modules that are used through another one: ``xml.dom`` after ``import xml.dom``."""
    for module in (value for value in values if isinstance(value, ModuleType)):
        prefix = f"{module.__name__}."
        loaded: Mapping[str, ModuleType] = dict(sys.modules)
        yield from (
            name for name in loaded if name.startswith(prefix) and used.issuperset(name[len(prefix) :].split("."))
        )
