"""Converts values of programs to JSON: numbers of numpy, arrays, tuples, ranges, sets, paths.

Packages such as numpy, pandas and torch are not imported: their arrays have `tolist`, their numbers `item`.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence, Set, ValuesView
from typing import Any

from nni_manager.domain.errors import InvalidInput

#: Keys of a dimension, which messages omit, so that they name `search_space.lr`.
_PARTS_OF_DIMENSIONS = frozenset({"_type", "_value"})
_ADVICE = "use numbers, text, booleans, None, and lists or dicts of them"


def plain(value: object, where: str) -> Any:
    """The value for JSON. `where`: the name of the value in messages. Raises InvalidInput."""
    try:
        return _plain(value, where)
    except RecursionError:
        raise InvalidInput(f"{where}: is nested too deeply, or contains itself; {_ADVICE}") from None


def plain_fields(fields: Mapping[Any, Any], where: str = "") -> dict[str, Any]:
    """The values of a dict, each named by its key in messages. Raises InvalidInput."""
    found: dict[str, Any] = {}
    for key, value in fields.items():
        name = _name(key, where)
        path = where if name in _PARTS_OF_DIMENSIONS and where else f"{where}.{name}" if where else name
        if name in found:
            raise InvalidInput(f"{path}: two keys of the dict have this name; remove one of them")
        found[name] = plain(value, path)
    return found


def _plain(value: object, where: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return _finite(float(value), where)
    if isinstance(value, Mapping):
        return plain_fields(value, where)
    if isinstance(value, os.PathLike):
        return _path(value, where)
    if (elements := _elements(value, where)) is not None:
        return [_plain(one, where) for one in elements]
    if (converted := _converted(value)) is not value:
        return _plain(converted, where)
    raise InvalidInput(f"{where}: {_kind(value)} cannot be sent as JSON; {_ADVICE}")


def _finite(number: float, where: str) -> float:
    if not math.isfinite(number):
        raise InvalidInput(f"{where}: {number} is not a finite number; JSON has no NaN and no infinity")
    return number


def _path(value: os.PathLike[Any], where: str) -> str:
    text = os.fspath(value)
    if not isinstance(text, str):
        raise InvalidInput(f"{where}: the path is bytes; use a text path")
    return text


def _elements(value: object, where: str) -> Iterable[object] | None:
    """The elements in a reproducible order; None if the value is not a Python collection."""
    if isinstance(value, KeysView | ValuesView):  # in the order of the dict
        return list(value)
    if isinstance(value, Set):
        return _sorted(value, where)
    if isinstance(value, Iterator):
        raise InvalidInput(f"{where}: {_kind(value)} can be read only once; write list(…)")
    is_sequence = isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview)
    return value if is_sequence else None  # type: ignore[return-value]  # the check is in a variable


def _sorted(value: Set[Any], where: str) -> list[Any]:
    """The elements of a set, sorted, because the order of a set differs between runs. Raises InvalidInput."""
    try:
        return sorted(value)
    except TypeError:
        raise InvalidInput(
            f"{where}: {_kind(value)} whose elements cannot be sorted has no order; use a list"
        ) from None


def _converted(value: object) -> object:
    """The result of `tolist` or `item` of another package's array or number; else the value itself."""
    for name in ("tolist", "item"):
        method = None if isinstance(value, type) else getattr(value, name, None)
        if callable(method):
            try:
                converted: object = method()
            except Exception:  # noqa: S112 - from any package; the value is refused later, with its type
                continue
            if type(converted) is not type(value):
                return converted
    return value


def _name(key: object, where: str) -> str:
    """The key for JSON: text, or a whole number as text."""
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, numbers.Integral) and not isinstance(key, bool):
        return str(int(key))
    place = f"{where}: " if where else ""
    raise InvalidInput(f"{place}a key of the dict is {_kind(key)}; use text")


def _kind(value: object) -> str:
    """The type with its article, such as ``a numpy.complex128``."""
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
