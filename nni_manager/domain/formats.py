"""Formats numbers, durations and sizes for users, the same for pages, command line and messages."""

from __future__ import annotations

import json
import math

#: An amount from here on would be shown as 1000 of its unit.
_NEXT_UNIT = 999.5


def number(value: float, digits: int = 6) -> str:
    """A number with `digits` significant digits, such as ``0.123457``; integers with all digits.

    ``NaN`` and ``Infinity`` are written as in JSON.
    """
    if isinstance(value, int):
        return str(value)
    return f"{value:.{digits}g}" if math.isfinite(value) else json.dumps(value)


def duration(ms: float) -> str:
    """A duration, given in milliseconds, in its two largest units; a negative one counts as 0.

    Such as ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 7 min``, ``4 d 1 h``.
    """
    seconds = max(int(ms), 0) // 1000
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    if minutes:
        return f"{minutes} min {seconds % 60} s"
    return f"{seconds} s" if seconds >= 10 else f"{max(int(ms), 0) // 100 / 10:.1f} s"


def size(bytes: int) -> str:
    """A number of bytes with three significant digits in units of 1000: ``512 B``, ``12 kB``, ``1.05 MB``."""
    if bytes < 1000:
        return f"{bytes} B"
    amount, unit = bytes / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if amount < _NEXT_UNIT:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.3g} {unit}" if amount < _NEXT_UNIT else f"{amount:.0f} {unit}"


def spreadsheet_text(text: str) -> str:
    """The text, changed so that a spreadsheet does not read it as a formula."""
    if not text or text[0] not in "=+-@\t\r":
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
