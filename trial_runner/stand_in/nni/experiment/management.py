"""Ids of experiments."""

from __future__ import annotations

import os
import re


def generate_experiment_id() -> str:
    """A new id, of eight letters and digits."""
    return os.urandom(4).hex()


def is_valid_experiment_id(experiment_id: str) -> bool:
    """Whether the text may be an id: at most 32 letters, digits, hyphens and underscores."""
    return re.match(r"[A-Za-z0-9_-]{1,32}\Z", experiment_id) is not None
