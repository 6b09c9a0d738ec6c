"""Parameters of a trial as people read and copy them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from nni_manager.web import formats


def flattened(values: object) -> Iterator[tuple[str, object]]:
    """(name, value) pairs in order. A nested one has its parents' names before its own, with dots, as the columns of
    the trials' table; a branch's value is its ``_name``. A value that is no mapping has the name ""."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from _named(str(name), value)
    else:
        yield "", values


def _named(name: str, value: object) -> Iterator[tuple[str, object]]:
    if not isinstance(value, Mapping) or "_name" not in value:
        yield name, value
        return
    yield name, value["_name"]
    for inner, below in value.items():
        if inner != "_name":
            yield from _named(f"{name}.{inner}", below)


def shown(value: object) -> str:
    """A value in one line: six significant digits of a number."""
    return formats.number(value) if isinstance(value, float) else formats.short(value)


def as_json(values: object) -> str:
    """Indented JSON, with all digits."""
    return json.dumps(values, ensure_ascii=False, indent=2)


def as_code(values: object) -> str:
    """Python that makes the same values."""
    text = _python(values, "")
    needs_math = "math." in text and any(word in text for word in ("math.nan", "math.inf"))
    return f"{'import math' + chr(10) * 2 if needs_math else ''}params = {text}"


def _python(value: object, indent: str) -> str:
    inner = indent + "    "
    if isinstance(value, Mapping) and value:
        lines = [f"{inner}{name!r}: {_python(below, inner)},\n" for name, below in value.items()]
        return "{\n" + "".join(lines) + indent + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_python(one, indent) for one in value) + "]"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"nan": "math.nan", "inf": "math.inf", "-inf": "-math.inf"}[repr(value)]
    return repr(value)
