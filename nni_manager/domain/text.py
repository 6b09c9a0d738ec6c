"""What counts as text. JSON and Python can spell halves of characters (lone surrogates), which UTF-8 cannot."""

from __future__ import annotations

import json

from nni_manager.domain.errors import InvalidInput


def require_text(what: str, value: object) -> None:
    """Of all text in `value`, which is JSON; messages call it `what`. Raises InvalidInput."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise InvalidInput(f"{what}: holds {half}, which UTF-8 has no bytes for; use other characters") from None


def spelled(text: str) -> str:
    """With escapes for halves of characters."""
    return text.encode(errors="backslashreplace").decode()
