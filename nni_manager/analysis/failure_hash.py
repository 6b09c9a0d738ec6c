"""A short name for a failure key, for addresses."""

from __future__ import annotations

import hashlib


def failure_hash(key: str) -> str:
    """Twelve hexadecimal digits; empty for an empty key."""
    return hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()[:12] if key else ""
