"""The token that clients show: what can stand in a header, as clients have to put it there."""

from __future__ import annotations


def parse_token(raw: str) -> str:
    """Without what stands around it, as the end of a line. Raises ValueError with the end of a sentence that begins
    with where it comes from; no text repeats it."""
    token = raw.strip()
    if not token:
        raise ValueError("must not be empty")
    if not (token.isascii() and token.isprintable()):
        raise ValueError("must be one line of printable ASCII characters, as clients show it in a header")
    return token
