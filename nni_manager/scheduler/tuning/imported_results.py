"""Imported results as a tuner is told them.

NNI's exports have each value as JSON text. It is stored as it came and parsed here, for every tuner, as in NNI.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.text import require_finite, require_text

#: ``parameter`` and ``value``; other keys of an export are kept.
Item = dict[str, Any]


def check(data: Sequence[Item]) -> None:
    """Requires that the results can be stored and told. Raises InvalidInput, which names the entry."""
    for number, entry in enumerate(data):
        require_finite(f"[{number}]", entry)
        require_text(f"[{number}]", entry)
        try:
            _parse(entry["value"])
        except (ValueError, RecursionError):
            raise InvalidInput(f"[{number}]: value is text and no JSON; give a number") from None


def parsed(data: Sequence[Item]) -> list[Item]:
    """The results with each value parsed that is JSON text."""
    return [{**entry, "value": _parsed(entry["value"])} if "value" in entry else entry for entry in data]


def _parsed(value: object) -> object:
    try:
        return _parse(value)
    except (ValueError, RecursionError):  # stored by NNI, which did not look at it
        return value


def _parse(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value
