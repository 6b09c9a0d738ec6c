"""A diff without what looks like a secret: it is stored, shown, and sent with a report."""

from __future__ import annotations

import asyncio
import re

from nni_manager.platform_kit.secret_texts import SecretTexts

_STARS = "***"
_NAMES = r"(?:password|passwd|secret|token|api_?key|access_?key|private_?key)"
#: A text in quotes that is given to such a name, in code and in JSON.
_QUOTED = re.compile(rf"({_NAMES}\w*[\"']?\]?\s*[:=]\s*)([\"'])(?!\2)[^\"'\n]{{4,}}\2", re.IGNORECASE)
#: A line of YAML or of an environment file.
_PLAIN = re.compile(
    rf"^([+\- ]\s*(?:export )?[\w-]*{_NAMES}[\w-]*(?:: +|=))(?![{{\[(\"'])[^\s(){{}}]{{4,}}$",
    re.IGNORECASE | re.MULTILINE,
)


async def masked(diff: bytes, secrets: SecretTexts) -> tuple[str, int]:
    """(the diff as text, how many values are masked in it). In a thread: it may have a megabyte."""
    return await asyncio.to_thread(_masked, diff, secrets)


def _masked(diff: bytes, secrets: SecretTexts) -> tuple[str, int]:
    text = secrets.redacted(diff.decode(errors="replace").replace("\0", "\ufffd"))
    text, quoted = _QUOTED.subn(rf"\1\2{_STARS}\2", text)
    text, plain = _PLAIN.subn(rf"\1{_STARS}", text)
    return text, quoted + plain
