"""The outboxes of an attempt, and their names. The same in keeper, runner and manager.

A file's name is bytes; what of it is no printable UTF-8 is spelled ``\\xff``, and a backslash is doubled, so that two
files never have one spelling: text that can be stored, sent and shown everywhere. Almost all names are their own.
"""

import os
import re
from typing import Container, Iterable, Iterator, List, Match, NamedTuple

from trial_runner import protocol
from trial_runner.wire import foreign_files
from trial_runner.wire.foreign_files import Folder

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


class Present(NamedTuple):
    """The outboxes found in an attempt's folder."""

    #: Names of outboxes, as `outbox_name` spells them. Links, pipes and names that begin with a dot are none.
    names: List[str]
    #: Folders that hold outboxes, deeper ones after their parents.
    folders: List[str]
    #: False: there are more files, or deeper ones, than are looked at, or than could be listed.
    is_complete: bool


def present(folder: Folder, known: Iterable[str]) -> Present:
    """The outboxes below `outbox/`, and NNI's metrics file.

    A listing that is cut short goes by the order of the folder, which is none, and one of storage of others may be
    old: outboxes that are `known` (names of some that were read or heard of before) and the one that ``$NNI_OUTBOX``
    names are looked for by name where it lacks them, and come first.
    """
    found = foreign_files.listing(folder, protocol.OUTBOX_FOLDER)
    names = sorted(map(spelled, found.files))
    expected = {*known, protocol.MAIN_OUTBOX}
    unlisted = [name for name in sorted(expected.difference(names)) if _is_outbox(folder, name)]
    if unlisted or not found.is_complete:
        first = sorted([*unlisted, *expected.intersection(names)])
        names = [*first, *(name for name in names if name not in expected)]
    if _is_there(folder, protocol.METRICS_FILE):
        names.append(protocol.METRICS_FILE)
    return Present(names, found.folders, found.is_complete)


def _is_outbox(folder: Folder, name: str) -> bool:
    is_below = name.startswith(protocol.OUTBOX_FOLDER + "/") and "/." not in name
    return is_below and _is_there(folder, file_name(name))


def _is_there(folder: Folder, file: str) -> bool:
    try:
        return foreign_files.size(folder, file) >= 0
    except OSError:
        return False
