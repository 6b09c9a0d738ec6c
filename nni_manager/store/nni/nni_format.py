"""NNI's formats: JSON as written by JavaScript, names of logs, and its tables.

`ExperimentProfile` gets a row at every save; NNI's other two tables are views, see the first migration.
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

#: Strings are matched so that numbers inside them are not.
_STRING_OR_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?')
#: Numbers with more digits before the point, or more zeros after it, are written with an exponent.
_MOST_DIGITS = 21
_MOST_ZEROS = 6


def as_javascript(value: object) -> str:
    """The value as written by JavaScript: compact, letters unescaped, 1.0 as ``1``. Raises ValueError for NaN.

    Whole numbers stay exact even if JavaScript would round them.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _STRING_OR_NUMBER.sub(_as_javascript, text)


def _as_javascript(found: re.Match[str]) -> str:
    token = found[0]
    return token if token.startswith('"') or not {".", "e"} & set(token) else _number(Decimal(token))


def _number(number: Decimal) -> str:
    """The number in JavaScript's notation, with the same digits."""
    sign, digits, exponent = number.normalize().as_tuple()
    assert isinstance(exponent, int)
    if not number:
        return "0"
    text, point = "".join(map(str, digits)), len(digits) + exponent
    return ("-" if sign else "") + _placed(text, point)


def _placed(digits: str, point: int) -> str:
    """`point`: number of digits before the decimal point."""
    if len(digits) <= point <= _MOST_DIGITS:
        return digits + "0" * (point - len(digits))
    if 0 < point <= _MOST_DIGITS:
        return f"{digits[:point]}.{digits[point:]}"
    if -_MOST_ZEROS < point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{mantissa}e{point - 1:+d}"


_NAMES = {"nnimanager.log": "nnictl_stdout.log", "dispatcher.log": "nnictl_stderr.log"}


def nni_log_name(log: Path) -> None:
    """Links a log under NNI's name next to it; an existing file of that name stays."""
    with suppress(OSError):  # the name is taken, or links are not supported: the link is optional
        log.with_name(_NAMES[log.name]).symlink_to(log.name)


def save_profile(connection: sqlite3.Connection) -> None:
    """Appends the current experiment as a row; NNI's tools read the highest revision."""
    connection.execute("UPDATE experiment SET revision = revision + 1")
    connection.execute(
        "INSERT INTO ExperimentProfile"
        " (params, id, execDuration, startTime, endTime, logDir, nextSequenceId, revision)"
        " SELECT config, id, exec_ms / 1000, created_ms, ended_ms, folder, next_sequence_id, revision FROM experiment"
    )
