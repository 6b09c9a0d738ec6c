"""Placeholders that a printed example leaves to be filled in: ``${your token}``, ``{your_server}``, ``<your-name>``.

Commands, arguments of algorithms, search spaces, pod templates and job configurations are never searched: braces and
angle brackets have a meaning there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORDS = r"[A-Za-z_][\w .,-]*"
_ANY = re.compile(rf"\$?\{{\s*{_WORDS}\}}|<{_WORDS}>")
_YOUR = re.compile(r"\$?\{\s*your[^{}]*\}|<\s*your[^<>]*>", re.IGNORECASE)


def refuse(raw: object) -> None:
    """Refuses every placeholder, where a path, a name or an address is meant. Raises ValueError that names them."""
    _refuse_all(_ANY.finditer(_text(raw)))


def refuse_your(raw: object) -> None:
    """Refuses placeholders that say ``your``, where braces may have a meaning. Raises ValueError."""
    _refuse_all(_YOUR.finditer(_text(raw)))


def refuse_whole(raw: object) -> None:
    """Refuses text that is one placeholder and nothing else, where anything may be meant, as in a password.

    ``${VARIABLE}`` refers to a variable and is not refused. Raises ValueError.
    """
    text = _text(raw).strip()
    if (
        _YOUR.fullmatch(text)
        or (_ANY.fullmatch(text) and not text.startswith("$"))
        or re.fullmatch(r"\$\{.* .*\}", text)
    ):
        _refuse(text)


def _text(raw: object) -> str:
    """The text of a value; empty for one without. `{your_server}` without quotes is a mapping of one key to nothing."""
    if isinstance(raw, dict) and len(raw) == 1 and None in raw.values():
        return f"{{{next(iter(raw))}}}"
    return raw if isinstance(raw, str) else ""


def _refuse_all(found: Iterable[re.Match[str]]) -> None:
    texts = dict.fromkeys(match[0] for match in found)
    if texts:
        _refuse(" and ".join(texts))


def _refuse(text: str) -> None:
    raise ValueError(f"the placeholder {text} is still there; put the real value in its place")
