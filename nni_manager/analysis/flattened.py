"""Reads and flattens parameters and dict results; without numpy, because pages use it, too.

``{"layer": {"_name": "conv", "size": 3}}`` becomes ``layer`` (``conv``) and ``layer.size``. Parameters that are not a
mapping become ``value``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json

#: Name of parameters that are not a mapping.
WHOLE = "value"
_MOST_LEVELS = 20


def parsed(texts: Sequence[str]) -> list[Any]:
    """The values of JSON texts with NaN and Infinity; None for invalid JSON."""
    try:
        found: list[Any] = from_json(f"[{','.join(texts)}]")
        if len(found) == len(texts):
            return found
    except ValueError:  # also a lone surrogate, which stored text may contain
        pass
    return [_parsed(text) for text in texts]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def flat(parameters: Any) -> Mapping[str, Any]:
    """Flattened name → value."""
    if not isinstance(parameters, dict):
        return {WHOLE: parameters}
    if dict not in set(map(type, parameters.values())):
        return parameters
    found: dict[str, Any] = {}
    _flatten(parameters, "", found, _MOST_LEVELS)
    return found


def _flatten(group: Mapping[str, Any], prefix: str, found: dict[str, Any], levels: int) -> None:
    for name, value in group.items():
        if name == "_name" and prefix:
            found[prefix.removesuffix(".")] = value
        elif isinstance(value, dict) and levels:
            _flatten(value, f"{prefix}{name}.", found, levels - 1)
        else:
            found[f"{prefix}{name}"] = value
