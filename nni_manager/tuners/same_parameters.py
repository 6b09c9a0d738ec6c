"""Texts that equal parameters share, by which tuners that repeat nothing know what was tried."""

from __future__ import annotations

import json


def text_of(parameters: object) -> str:
    """One text for equal parameters. A whole number may be an integer or a float: JSON of other programs has no
    difference."""
    return json.dumps(_plain(parameters), sort_keys=True)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
