"""Secrets in a config, covered before it leaves the daemon."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "******"

#: ``accessKeySecret``, ``storageAccountKey``, ``sshPassphrase``; not ``sshKeyFile``, which is a path.
_SECRET = re.compile(r"password|passphrase|token|secret|credential|key$", re.IGNORECASE)
#: Its keys are the user's names of dimensions.
_SEARCH_SPACE = "searchSpace"


def mask(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with `MASK` in place of every value whose name sounds like a secret, however deep."""
    return {key: value if key == _SEARCH_SPACE else _mask(key, value) for key, value in config.items()}


def _mask(key: str, value: Any) -> Any:
    if _SECRET.search(key) and value is not None:
        return MASK
    if isinstance(value, Mapping):
        return {name: _mask(name, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_mask(key, inner) for inner in value]
    return value
