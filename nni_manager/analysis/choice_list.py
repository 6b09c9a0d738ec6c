"""Lists of values in a query string: texts as they are, JSON where a text alone would be misread."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from nni_manager.domain.errors import InvalidInput

_decoder = json.JSONDecoder()
#: Characters with which JSON begins.
ESCAPED = ('"', "[", "{")


def split(word: str, text: str) -> Iterator[str]:
    """The values of a list joined by commas; those that begin as JSON end where it ends.

    A text in quotes stays in quotes: it means the text alone, not the number or truth value that is spelled so. Raises
    InvalidInput with `word`, the name of the query parameter.
    """
    at = 0
    while at <= len(text):
        end = _json_end(word, text, at) if text.startswith(ESCAPED, at) else text.find(",", at)
        end = len(text) if end < 0 else end
        yield text[at:end]
        at = end + 1


def joined(values: Iterable[str]) -> str:
    """The list that `split` splits into these values."""
    return ",".join(json.dumps(value) if _is_misread(value) else value for value in values)


def _is_misread(value: str) -> bool:
    if value.startswith(ESCAPED):
        try:
            return _decoder.raw_decode(value)[1] != len(value)
        except ValueError:
            return True
    return "," in value


def _json_end(word: str, text: str, at: int) -> int:
    try:
        _, end = _decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        raise InvalidInput(
            f"{word}: {text[at : at + 40]!r} begins as JSON and is none; put the text in quotes"
        ) from None
    if end < len(text) and text[end] != ",":
        raise InvalidInput(f"{word}: a comma is missing after {text[at:end][-40:]!r}")
    return end
