"""Imported results in the form that tuners get.

NNI's exports have each value as JSON text. It is stored unchanged and parsed here, for every tuner, as in NNI.
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
    """Requires that the results can be stored and used. Raises InvalidInput, which names the entry."""
    for number, entry in enumerate(data):
        require_finite(f"[{number}]", entry)
        require_text(f"[{number}]", entry)
        try:
            _parse(entry["value"])
        except (ValueError, RecursionError):
            raise InvalidInput(f"[{number}]: value is text but not JSON; use a number") from None


def parsed(data: Sequence[Item]) -> list[Item]:
    """The results, with each JSON text parsed."""
    return [{**entry, "value": _parsed(entry["value"])} if "value" in entry else entry for entry in data]


def _parsed(value: object) -> object:
    try:
        return _parse(value)
    except (ValueError, RecursionError):  # stored by NNI, which did not check it
        return value


def _parse(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value
