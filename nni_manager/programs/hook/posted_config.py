"""The config that NNI's launcher posts: completed by NNI, so that fields are there twice."""

from __future__ import annotations

from typing import Any

#: Field → the one that NNI filled from it.
_READ_ALREADY = {"searchSpaceFile": "searchSpace"}


def as_written(config: dict[str, Any]) -> dict[str, Any]:
    """The config without what NNI added: fields that are not set, files that it has read, and what training services
    repeat."""
    own = {name: value for name, value in config.items() if value is not None}
    for file, content in _READ_ALREADY.items():
        if content in own:
            own.pop(file, None)
    if "trainingService" in own:
        own["trainingService"] = _services(own["trainingService"], own)
    return own


def _services(found: Any, config: dict[str, Any]) -> Any:
    if isinstance(found, list):
        return [_services(one, config) for one in found]
    return {name: value for name, value in found.items() if value is not None and config.get(name, _NOTHING) != value}


_NOTHING = object()
