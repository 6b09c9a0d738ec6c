"""Masks text that looks like a secret in a diff, which is stored, displayed and sent with reports.

Keys and certificates, from ``-----BEGIN …-----`` to ``-----END …-----``, are masked completely or in part.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from nni_manager.platform_kit.secret_texts import SecretTexts
from nni_manager.platform_kit.secret_values import STARS, masked_line

_BEGIN, _END = re.compile(r"-----BEGIN [A-Z0-9 ]{1,60}-----"), re.compile(r"-----END [A-Z0-9 ]{1,60}-----")
#: A key in a single line, with ``\n`` between its lines. It ends before the next one begins, so that each character is
#: examined once.
_IN_LINE = re.compile(rf"({_BEGIN.pattern})(?:(?!-----BEGIN ).){{0,20000}}?({_END.pattern})")
_ENCODED = re.compile(r"[+\- ]?[A-Za-z0-9+/= \t\r]*")
#: Maximum number of lines of a key; a longer one is masked as far as its lines look encoded.
_MOST = 500


def without_key_blocks(text: str) -> tuple[str, int]:
    """(the text without the content of blocks, number of blocks). Line numbers are unchanged."""
    text, count = _IN_LINE.subn(rf"\1{STARS}\2", text)
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
    """The index after the last line of a block; `start`: of the first line after its beginning."""
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
    """The index of the first line of a block without a beginning; `end`: of its end."""
    at = end
    while at > 0 and _ENCODED.fullmatch(lines[at - 1]):
        at -= 1
    return at


def _mask(lines: list[str], places: range) -> int:
    """Mask lines; return the last index."""
    for at in places:
        line = lines[at]
        if not _END.search(line) and line.strip("+- \t\r"):
            lines[at] = (line[0] if line[0] in "+- " else "") + STARS
    return places.stop - 1


async def masked(diff: bytes, secrets: SecretTexts) -> tuple[str, int]:
    """(the diff as text, number of masked values), in a thread, because it may have a megabyte."""
    return await asyncio.to_thread(_masked, diff, secrets)


def _masked(diff: bytes, secrets: SecretTexts) -> tuple[str, int]:
    """Mask line by line, because a search in the whole text would block the event loop's thread."""
    text = diff.decode(errors="replace").replace("\0", "\ufffd")
    text, count = without_key_blocks("\n".join(map(secrets.redacted, text.split("\n"))))
    lines = text.split("\n")
    for at, line in enumerate(lines):
        lines[at], found = masked_line(line)
        count += found
    return "\n".join(lines), count
