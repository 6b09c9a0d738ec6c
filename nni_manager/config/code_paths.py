"""Changes the folders of code that a config names, when the folder that they lie in has moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIELDS = ("trialCodeDirectory", "codeDirectory")
#: Sections that have such fields besides the top level. Arguments of a user's class are never changed.
_SECTIONS = ("tuner", "assessor", "trainingService")


def move(canonical: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """The config with `new` in place of `old`, in each of `_FIELDS` that is `old` or lies in it. Both are absolute."""
    sections = {name: _move_all(canonical[name], old, new) for name in _SECTIONS if name in canonical}
    return _move({**canonical, **sections}, old, new)


def _move_all(sections: Any, old: str, new: str) -> Any:
    """The sections with their folders changed. `sections`: one, or a list of them; NNI's configs have null for none."""
    if isinstance(sections, list):
        return [_move_all(section, old, new) for section in sections]
    return _move(sections, old, new) if isinstance(sections, dict) else sections


def _move(section: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    inside = {
        name: new + section[name].removeprefix(old)
        for name in _FIELDS
        if f"{section.get(name, '')}/".startswith(f"{old}/")
    }
    return {**section, **inside}
