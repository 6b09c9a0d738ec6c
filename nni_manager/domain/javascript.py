"""JSON as JavaScript writes it (`JSON.stringify`): what NNI stores and answers, byte for byte."""

from __future__ import annotations

import json
import re
from decimal import Decimal

#: Strings are found so that numbers in them are not.
_STRING_OR_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?')
#: Numbers with so many digits before the point have an exponent, and those below a millionth.
_MOST_DIGITS = 21
_MOST_ZEROS = 6


def stringify(value: object) -> str:
    """Compact, other letters than ASCII's as they are, 1.0 as ``1``. Raises ValueError for NaN and infinity.

    Whole numbers stay exact where JavaScript would round them.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _STRING_OR_NUMBER.sub(_as_javascript, text)


def _as_javascript(found: re.Match[str]) -> str:
    token = found[0]
    return token if token.startswith('"') or not {".", "e"} & set(token) else _number(Decimal(token))


def _number(number: Decimal) -> str:
    """The same digits, the other notation."""
    sign, digits, exponent = number.normalize().as_tuple()
    assert isinstance(exponent, int)
    if not number:
        return "0"
    text, point = "".join(map(str, digits)), len(digits) + exponent
    return ("-" if sign else "") + _placed(text, point)


def _placed(digits: str, point: int) -> str:
    """`point`: how many digits stand before it."""
    if len(digits) <= point <= _MOST_DIGITS:
        return digits + "0" * (point - len(digits))
    if 0 < point <= _MOST_DIGITS:
        return f"{digits[:point]}.{digits[point:]}"
    if -_MOST_ZEROS < point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{mantissa}e{point - 1:+d}"
