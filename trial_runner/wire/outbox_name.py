"""Names of outboxes as text that can be stored, sent and shown everywhere.

A file's name is bytes; what of it is no printable UTF-8 is spelled ``\\xff``, and a backslash is doubled, so that two
files never have one spelling. Almost all names are their own spelling.
"""

import os
import re
from typing import Container, Iterator, Match

from trial_runner import protocol

_SPELLED = re.compile(rb"\\(?:x([0-9a-f]{2})|\\)")
#: Follows a file's name in an outbox of a later file of that name.
_NUMBER = re.compile(r"/([2-9]|[1-9][0-9]{1,8})\Z")
#: Characters of a file's name that is taken.
_MOST_CHARACTERS = 255


def is_outbox(spelling: str) -> bool:
    """A path below the attempt's folder, where results may be, and none that leads elsewhere."""
    file = _NUMBER.sub("", spelling)
    is_ours = file == protocol.METRICS_FILE or spelling.startswith(protocol.OUTBOX_FOLDER + "/")
    leads_elsewhere = ".." in spelling.split("/")
    return is_ours and not leads_elsewhere and len(file) <= _MOST_CHARACTERS and spelling.isprintable()


def next_name(file: str, name: str) -> str:
    """The name of the outbox that `file` becomes when it is another one than `name` was: ``a``, ``a/2``, ``a/3``.

    No file can have it, as there is one already where it would need a folder.
    """
    return "{}/{}".format(file, 2 if name == file else int(name.rpartition("/")[2]) + 1)


def newest_name(file: str, known: Container[str]) -> str:
    """The name of the outbox that a file is now, as far as is `known`."""
    name, following = file, next_name(file, file)
    while following in known:
        name, following = following, next_name(file, following)
    return name


def file_of(name: str, known: Container[str]) -> str:
    """The file that an outbox is, or was until another one took its place."""
    file = ""
    for earlier in earlier_names(name):
        if earlier not in known:
            return name
        file = file or earlier
    return file or name


def earlier_names(name: str) -> Iterator[str]:
    """The names of the outboxes that this one may have replaced, in order; none where it has no number.

    To be followed only as long as they are known: a file's own name may end with a number, and any number.
    """
    match = _NUMBER.search(name)
    if match is not None:
        file = name[: match.start()]
        yield file
        for number in range(2, int(match.group(1))):
            yield "{}/{}".format(file, number)


def spelled(name: str) -> str:
    """The spelling of a name that the `os` module tells."""
    if name.isprintable() and "\\" not in name:
        return name
    text = os.fsencode(name).decode("utf-8", "surrogateescape")
    return "".join(_spelled_character(character) for character in text)


def file_name(spelling: str) -> str:
    """The name to ask `os` for; the other way of `spelled`."""
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
