"""Keys and certificates from ``-----BEGIN …-----`` to ``-----END …-----``, whole or in part, in the lines of a diff."""

from __future__ import annotations

import re
from collections.abc import Sequence

_STARS = "***"
_BEGIN, _END = re.compile(r"-----BEGIN [A-Z0-9 ]+-----"), re.compile(r"-----END [A-Z0-9 ]+-----")
#: A key in a text of one line, its lines apart by ``\n``.
_IN_LINE = re.compile(rf"({_BEGIN.pattern}).*?({_END.pattern})")
_ENCODED = re.compile(r"[+\- ]?[A-Za-z0-9+/= \t\r]*")
#: Most lines of one; a longer one is masked as far as its lines look like it.
_MOST = 500


def masked(text: str) -> tuple[str, int]:
    """(the text without what is in the blocks, how many there are). Lines stay, so that places in the diff do."""
    text, count = _IN_LINE.subn(rf"\1{_STARS}\2", text)
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        begins, ends = _BEGIN.search(lines[at]), _END.search(lines[at])
        if begins and not ends:
            count, at = count + 1, _mask(lines, range(at + 1, _end(lines, at + 1)))
        elif ends and not begins:
            count += 1
            _mask(lines, range(_start(lines, at), at))
        at += 1
    return "\n".join(lines), count


def _end(lines: Sequence[str], start: int) -> int:
    """The place after the last line of a block, of which `start` is the first one after its beginning."""
    for at in range(start, min(start + _MOST, len(lines))):
        if _END.search(lines[at]):
            return at + 1
        if _BEGIN.search(lines[at]) or lines[at].startswith("@@"):
            break
    at = start
    while at < len(lines) and _ENCODED.fullmatch(lines[at]):
        at += 1
    return at


def _start(lines: Sequence[str], end: int) -> int:
    """The place of the first line of a block whose beginning is not there; `end`: of its end."""
    at = end
    while at > 0 and _ENCODED.fullmatch(lines[at - 1]):
        at -= 1
    return at


def _mask(lines: list[str], places: range) -> int:
    """Returns the last place."""
    for at in places:
        line = lines[at]
        if not _END.search(line) and line.strip("+- \t\r"):
            lines[at] = (line[0] if line[0] in "+- " else "") + _STARS
    return places.stop - 1
