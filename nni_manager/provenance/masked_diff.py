"""A diff without what looks like a secret: it is stored, shown, and sent with a report."""

from __future__ import annotations

import asyncio
import re

from nni_manager.platform_kit.secret_texts import SecretTexts
from nni_manager.provenance import key_blocks

_STARS = "***"
_NAMES = r"(?:password|passwd|secret|token|api_?key|access_?key|private_?key)"
#: What may stand between a name and its value: an annotation of its type.
_ANNOTATION = r"(?:\s*:\s*[\w.| ]{1,40}(?:\[[\w.|, \[\]]{0,40}\][\w.| ]{0,40})?(?==))?"
#: A text in quotes, in which the other quote and escaped ones may stand; {quote}: number of the quote's group.
_TEXT = r"([\"'])(?!\{quote})(?:\\.|(?!\{quote})[^\\\n]){{4,}}\{quote}"
#: One that is given to such a name, in code and in JSON: ``token = "…"``, ``"token": "…"``, ``set("TOKEN", "…")``.
_QUOTED = re.compile(
    rf"({_NAMES}\w*[\"']?\]?{_ANNOTATION}\s*[:=]\s*[rbfu]{{0,2}}"
    rf"|\(\s*[\"'][\w.-]*{_NAMES}[\w.-]*[\"']\s*,\s*[rbfu]{{0,2}}){_TEXT.format(quote=2)}",
    re.IGNORECASE,
)
#: A line of YAML or of an environment file.
_PLAIN = re.compile(
    rf"^([+\- ]\s*(?:export )?[\w-]*{_NAMES}[\w-]*(?:: +|=))(?![{{\[(\"'])[^\s(){{}}]{{4,}}(?=(?:[ \t]+#.*)?\r?$)",
    re.IGNORECASE | re.MULTILINE,
)


async def masked(diff: bytes, secrets: SecretTexts) -> tuple[str, int]:
    """(the diff as text, how many values are masked in it). In a thread: it may have a megabyte."""
    return await asyncio.to_thread(_masked, diff, secrets)


def _masked(diff: bytes, secrets: SecretTexts) -> tuple[str, int]:
    text = secrets.redacted(diff.decode(errors="replace").replace("\0", "\ufffd"))
    text, blocks = key_blocks.masked(text)
    text, quoted = _QUOTED.subn(rf"\1\2{_STARS}\2", text)
    text, plain = _PLAIN.subn(rf"\1{_STARS}", text)
    return text, blocks + quoted + plain
