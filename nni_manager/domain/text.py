"""Text that can be stored and read by everybody. JSON and Python can spell halves of characters (lone surrogates),
which UTF-8 cannot; Python reads NaN, which JSON has no word for."""

from __future__ import annotations

import json

from nni_manager.domain.errors import InvalidInput


def require_text(what: str, value: object) -> None:
    """Of all text in `value`, which is JSON; messages call it `what`. Raises InvalidInput."""
    try:
        (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise InvalidInput(f"{what}: holds {half}, which UTF-8 has no bytes for; use other characters") from None


def require_finite(what: str, value: object) -> None:
    """Of all numbers in `value`, which is JSON; messages call it `what`. Raises InvalidInput."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise InvalidInput(f"{what}: NaN and infinity are no JSON; use finite numbers") from None


def printable(text: str) -> str:
    """Without what would move a terminal's cursor or change its colours; lines and tabs stay."""
    return "".join(character for character in text if character.isprintable() or character in "\n\t")


def spelled(text: str) -> str:
    """With escapes for halves of characters."""
    return text.encode(errors="backslashreplace").decode()
