"""Removes secrets from sentences, in every spelling with which a service may repeat a request.

A text is redacted first and truncated afterwards: a truncated secret would not be recognized. `PrivateText` is here
because the store, which saves it, needs nothing else of the kit: commands that read closed experiments import no event
loop.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus, unquote

#: Maximum number of characters of another program's text that are passed on.
MOST_WORDS = 500
_STARS = "***"
#: Shorter texts would be found in any sentence; no service accepts such a password.
_LEAST = 3
#: User and password before a host.
_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@\"']+@")


class SecretTexts:
    """The secrets of one account or section; `repr` does not show them."""

    def __init__(self, *secrets: str) -> None:
        self._spellings: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.keep(*secrets)

    def keep(self, *secrets: str) -> None:
        """Removes these from all sentences from now on."""
        found = {one for secret in secrets if len(secret) >= _LEAST for one in _spellings(secret)}
        if not found <= self._spellings:
            self._spellings |= found
            longest_first = sorted(self._spellings, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(_any_case_of_hex, longest_first)))

    def redacted(self, text: str) -> str:
        """The text without the secrets, and without user and password before a host."""
        text = _IN_ADDRESS.sub(f"{_STARS}@", text)
        return text if self._pattern is None else self._pattern.sub(_STARS, text)

    def shown(self, text: str, most: int = MOST_WORDS) -> str:
        """The redacted text, truncated."""
        return self.redacted(text.strip())[:most]


def _spellings(secret: str) -> Iterator[str]:
    """A secret as spelled in headers, addresses, forms, JSON, HTML and Basic authentication."""
    yield secret
    for decoded in (secret, unquote(secret)):
        yield from (quote(decoded, safe=""), quote(decoded), quote_plus(decoded), decoded)
    yield quote(quote(secret, safe=""), safe="")
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield json.dumps(secret).replace("/", "\\/")[1:-1]
    yield html.escape(secret)
    yield html.escape(secret).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    yield base64.b64encode(secret.encode()).decode().rstrip("=")
    yield base64.urlsafe_b64encode(secret.encode()).decode().rstrip("=")


def _any_case_of_hex(spelling: str) -> str:
    """A pattern of the spelling that also matches ``%2f`` for ``%2F``."""
    return re.sub(r"%([0-9A-Fa-f]{2})", lambda found: f"%(?i:{found[1]})", re.escape(spelling))


class PrivateText:
    """A text of one training service that is stored with the secrets. This class only keeps it in memory."""

    def __init__(self) -> None:
        self._text = ""

    def read(self) -> str:
        """Blocks. Raises StoreError."""
        return self._text

    def write(self, text: str) -> None:
        """Blocks. Raises StoreError."""
        self._text = text
