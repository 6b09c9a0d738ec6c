"""Checks of text from outside: lone surrogates, which UTF-8 cannot encode; NaN, which JSON lacks; tokens, which must
fit into a header."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping

from nni_manager.domain.errors import InvalidInput


def require_text(what: str, value: object) -> None:
    """Requires that all text in `value`, which is JSON, can be written as UTF-8; messages call it `what`. Raises
    InvalidInput.
    """
    try:
        (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise InvalidInput(f"{what}: holds {half}, which UTF-8 has no bytes for; use other characters") from None


def require_texts(fields: Mapping[str, object]) -> None:
    """`require_text` of each field, which is named."""
    for name, value in fields.items():
        require_text(name, value)


def require_finite(what: str, value: object) -> None:
    """Requires that all numbers in `value`, which is JSON, are finite; messages call it `what`. Raises InvalidInput."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise InvalidInput(f"{what}: NaN and infinity are no JSON; use finite numbers") from None


#: Characters that a terminal or a viewer acts on: control characters (C0 without line breaks and tabs, DEL, C1), and
#: those that reorder text or begin a line.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def printable(text: str) -> str:
    """The text without `UNPRINTABLE` characters."""
    return UNPRINTABLE.sub("", text)


def is_visible(text: str) -> bool:
    """Whether some character of the text can be seen: not all are spaces, control or format characters."""
    return any(unicodedata.category(character)[0] not in "CZ" for character in text)


#: The most characters of a line in a sentence.
_LINE = 200


def last_line(text: str) -> str:
    """The last line that is not empty, printable, cut to 200 characters."""
    found = next((line.strip() for line in reversed(printable(text).splitlines()) if line.strip()), "")
    return shortened(found)


def shortened(line: str) -> str:
    """The line, cut to 200 characters."""
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"


def web_link(link: str) -> str:
    """The link if it is http or https, else empty: the platform may have sent anything."""
    return link if link.startswith(("https://", "http://")) else ""


def spelled(text: str) -> str:
    """The text with escapes in place of lone surrogates."""
    return text.encode(errors="backslashreplace").decode()


def refuse_login_in(address: str) -> None:
    """Refuses an address with user or password in front of the host: it is shown in sentences, and kept as it is
    written. Raises ValueError, whose text shows neither.
    """
    if "@" in address.partition("://")[2].partition("/")[0]:
        raise ValueError(
            "must not hold a user or password in front of the host (user:password@host); write them into the fields"
            " that take them, such as username, password or token"
        )


def parse_token(raw: str) -> str:
    """Without what stands around it, as the end of a line. Raises ValueError with the end of a sentence that begins
    with where it comes from; no text repeats it."""
    token = raw.strip()
    if not token:
        raise ValueError("must not be empty")
    if not (token.isascii() and token.isprintable()):
        raise ValueError("must be one line of printable ASCII characters, as clients show it in a header")
    return token
