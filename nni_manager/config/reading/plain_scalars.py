"""The values of unquoted scalars, as YAML 1.2 reads them.

Environment variables are read so, too, and need no YAML library for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]{1,300}")
_BASED_INT = re.compile(r"0(?:x[0-9a-fA-F]{1,300}|o[0-7]{1,300})")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def plain_value(text: str) -> bool | int | float | str | None:
    """The value of an unquoted scalar; its text where it is no number, truth value or null."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _BASED_INT.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    special = _SPECIAL_FLOAT.fullmatch(text)
    return float(text.replace(".", "", 1)) if special else text
