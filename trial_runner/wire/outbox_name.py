"""Names of outboxes as text that everybody can store, send and show.

A file's name is bytes; what of it is no printable UTF-8 is spelled ``\\xff``, and a backslash is doubled, so that two
files never have one spelling. Almost all names are their own spelling.
"""

import os
import re
from typing import Match

from trial_runner import protocol

_SPELLED = re.compile(rb"\\(?:x([0-9a-f]{2})|\\)")
#: Characters of a name that is taken.
_MOST_CHARACTERS = 255


def is_outbox(spelling: str) -> bool:
    """A path below the attempt's folder, where results may be, and none that leads elsewhere."""
    is_ours = spelling == protocol.METRICS_FILE or spelling.startswith(protocol.OUTBOX_FOLDER + "/")
    leads_elsewhere = ".." in spelling.split("/")
    return is_ours and not leads_elsewhere and len(spelling) <= _MOST_CHARACTERS and spelling.isprintable()


def spelled(name: str) -> str:
    """Of a name as the `os` module tells it."""
    if name.isprintable() and "\\" not in name:
        return name
    text = os.fsencode(name).decode("utf-8", "surrogateescape")
    return "".join(_spelled_character(character) for character in text)


def file_name(spelling: str) -> str:
    """What `os` is to be asked for; the other way of `spelled`."""
    if "\\" not in spelling:
        return spelling
    return os.fsdecode(_SPELLED.sub(_byte, spelling.encode("utf-8", "surrogateescape")))


def _spelled_character(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    return "".join("\\x{:02x}".format(byte) for byte in character.encode("utf-8", "surrogateescape"))


def _byte(match: Match[bytes]) -> bytes:
    return bytes([int(match.group(1), 16)]) if match.group(1) else b"\\"
