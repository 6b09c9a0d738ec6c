"""Checks of external text: lone surrogates and NaN, which UTF-8 and JSON lack, and tokens for headers."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping

from nni_manager.domain.errors import InvalidInput


def require_text(what: str, value: object) -> None:
    """Require that all text in the JSON `value` can be encoded as UTF-8. `what`: its name. Raises InvalidInput."""
    try:
        (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise InvalidInput(f"{what}: holds {half}, which UTF-8 cannot encode; use other characters") from None


def require_texts(fields: Mapping[str, object]) -> None:
    """Call `require_text` for each field, with its name."""
    for name, value in fields.items():
        require_text(name, value)


def require_finite(what: str, value: object) -> None:
    """Require that all numbers in the JSON `value` are finite. `what`: its name. Raises InvalidInput."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise InvalidInput(f"{what}: NaN and infinity are not valid JSON; use finite numbers") from None


#: Characters that a terminal or a viewer acts on: control characters (C0 without line breaks and tabs, DEL, C1), and
#: those that reorder text or begin a line.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def printable(text: str) -> str:
    """The text without `UNPRINTABLE` characters."""
    return UNPRINTABLE.sub("", text)


def is_visible(text: str) -> bool:
    """Whether the text has a visible character: not only spaces, control or format characters."""
    return any(unicodedata.category(character)[0] not in "CZ" for character in text)


#: The most characters of a line in a sentence.
_LINE = 200


def last_line(text: str) -> str:
    """The last non-empty line, printable, cut to 200 characters."""
    found = next((line.strip() for line in reversed(printable(text).splitlines()) if line.strip()), "")
    return shortened(found)


def shortened(line: str) -> str:
    """The line, cut to 200 characters."""
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"


def web_link(link: str) -> str:
    """The link if it is http or https, else empty, because platforms are untrusted."""
    return link if link.startswith(("https://", "http://")) else ""


def spelled(text: str) -> str:
    """The text with escapes in place of lone surrogates."""
    return text.encode(errors="backslashreplace").decode()


def refuse_login_in(address: str) -> None:
    """Refuse an address with user or password, because it is shown in messages and stored unchanged.

    Raises ValueError, whose text contains neither.
    """
    if "@" in address.partition("://")[2].partition("/")[0]:
        raise ValueError(
            "must not contain a user or password before the host (user:password@host); use the fields"
            " username, password or token instead"
        )


def parse_token(raw: str) -> str:
    """The token without surrounding whitespace.

    Raises ValueError with a message that follows the name of the source and never repeats the token.
    """
    token = raw.strip()
    if not token:
        raise ValueError("must not be empty")
    if not (token.isascii() and token.isprintable()):
        raise ValueError("must be one line of printable ASCII characters, because clients send it in a header")
    return token
