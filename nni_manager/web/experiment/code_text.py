"""Parameters as code."""

from __future__ import annotations

import pprint


def python(parameters: object) -> str:
    """A Python statement that sets ``params``."""
    return f"params = {pprint.pformat(parameters, sort_dicts=False, width=100)}"
