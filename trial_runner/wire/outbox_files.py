"""The outboxes of an attempt, their names, and their records from a byte offset on; for keeper, runner and manager.

A file's name is bytes. Bytes that are not printable UTF-8 are spelled ``\\xff``, and a backslash is doubled: the
spelling is unique, and can be stored, sent and shown everywhere. Almost all names are their own spelling.
"""

import json
import os
import re
from typing import Callable, Container, Iterable, Iterator, List, Mapping, NamedTuple

from trial_runner import protocol
from trial_runner.wire import foreign_files
from trial_runner.wire.foreign_files import Folder

_SPELLED = re.compile(rb"\\(?:x([0-9a-f]{2})|\\)")
#: Separator between a file's name and its generation, in an outbox of a replaced file.
_NUMBER = re.compile(r"/([2-9]|[1-9][0-9]{1,8})\Z")
#: Maximum length of a file's name.
_MOST_CHARACTERS = 255


def is_outbox(spelling: str) -> bool:
    """Whether a path is below the attempt's folder, can contain results, and leads nowhere else."""
    file = _NUMBER.sub("", spelling)
    is_ours = file == protocol.METRICS_FILE or spelling.startswith(protocol.OUTBOX_FOLDER + "/")
    leads_elsewhere = ".." in spelling.split("/")
    return is_ours and not leads_elsewhere and len(file) <= _MOST_CHARACTERS and spelling.isprintable()


def next_name(file: str, name: str) -> str:
    """The name of the outbox of a `file` that replaced that of outbox `name`: ``a``, ``a/2``, ``a/3``.

    No file can have it, as the folder in it would be an existing file.
    """
    return "{}/{}".format(file, 2 if name == file else int(name.rpartition("/")[2]) + 1)


def newest_name(file: str, known: Container[str]) -> str:
    """The name of the outbox that a file is now, as far as `known`."""
    name, following = file, next_name(file, file)
    while following in known:
        name, following = following, next_name(file, following)
    return name


def file_of(name: str, known: Container[str]) -> str:
    """The file of an outbox, possibly replaced since."""
    file = ""
    for earlier in earlier_names(name):
        if earlier not in known:
            return name
        file = file or earlier
    return file or name


def earlier_names(name: str) -> Iterator[str]:
    """The names of the outboxes that this one may have replaced, in order; none without a number.

    Follow it only while they are known: a file's own name may end with any number.
    """
    match = _NUMBER.search(name)
    if match is not None:
        file = name[: match.start()]
        yield file
        for number in range(2, int(match.group(1))):
            yield "{}/{}".format(file, number)


def spelled(name: str) -> str:
    """The spelling of a name from the `os` module."""
    if name.isprintable() and "\\" not in name:
        return name
    text = os.fsencode(name).decode("utf-8", "surrogateescape")
    return "".join(_spelled_character(character) for character in text)


def file_name(spelling: str) -> str:
    """The name for the `os` module; the inverse of `spelled`."""
    if "\\" not in spelling:
        return spelling
    written = spelling.encode("utf-8", "surrogateescape")
    return os.fsdecode(_SPELLED.sub(lambda match: bytes([int(match[1], 16)]) if match[1] else b"\\", written))


def _spelled_character(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    return "".join("\\x{:02x}".format(byte) for byte in character.encode("utf-8", "surrogateescape"))


class Present(NamedTuple):
    """The outboxes found in an attempt's folder."""

    #: Names of outboxes, in the form of `spelled`; without links, pipes and names that begin with a dot.
    names: List[str]
    #: Folders that contain outboxes, deeper ones after their parents.
    folders: List[str]
    #: False: there are more or deeper files than the limit, or some could not be listed.
    is_complete: bool


#: The result if the attempt's folder is missing.
NOTHING = Present([], [], True)


def gone(found: Present, offsets: Mapping[str, int]) -> List[str]:
    """Missing parts of an attempt: the folder of outboxes, or files that were read before (`offsets`)."""
    if found.is_complete and protocol.OUTBOX_FOLDER not in found.folders:
        return [protocol.OUTBOX_FOLDER]
    read = {file_of(name, offsets) for name, offset in offsets.items() if offset and "/." not in name}
    return sorted(read.difference(found.names))


def present(folder: Folder, known: Iterable[str]) -> Present:
    """The outboxes below `outbox/`, and NNI's metrics file.

    A truncated listing has an arbitrary order, and storage of others may show an old one. So `known` outboxes (some
    that were read or reported before) and the file of ``$NNI_OUTBOX`` are looked up by name if they are missing, and
    come first.
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


_MARK = re.compile(
    re.escape(protocol.METRICS_FILE_MARK) + b"([0-9]{%d})" % protocol.METRICS_FILE_DIGITS
)  # e.g. ME000098
#: The byte that storage shows for data that has not arrived yet.
HOLE = b"\0"
_MARK_LENGTH = len(protocol.METRICS_FILE_MARK) + protocol.METRICS_FILE_DIGITS


class Records(NamedTuple):
    """The complete records at the beginning of some bytes."""

    texts: List[str]
    #: Their size in bytes, skipped bytes included; what follows is incomplete.
    length: int
    #: Bytes that belong to no record.
    skipped: int


def read_records(descriptor: int, outbox: str, start: int, is_all: bool, size: int) -> Records:
    """Complete records from `start` on, of the first `size` bytes there; of more for a single longer record.

    A zero byte is not part of a record: storage of others shows zeros before the written data. Nothing beyond it counts
    as complete, unless `is_all`. A line of more than `protocol.MAX_RECORD` bytes is skipped, and reported once, at its
    beginning, by the line `protocol.TOO_LONG`. `is_all`: the file is complete. Raises OSError.
    """
    if outbox != protocol.METRICS_FILE and _is_inside_long_line(descriptor, start):
        return _rest_of_long_line(os.pread(descriptor, protocol.MAX_RECORD, start))
    cut = cut_frames if outbox == protocol.METRICS_FILE else cut_lines
    most = protocol.MAX_RECORD + 1  # with the newline
    limit = size
    while True:
        data = os.pread(descriptor, size, start)
        if not is_all:
            data = data.partition(HOLE)[0]  # the rest has not arrived yet
        records = cut(data, is_all and len(data) < size)
        if records.length or len(data) < size:
            return cut_first(cut, data, records) if records.length > limit else records
        if size >= most:
            return Records([protocol.TOO_LONG], len(data), len(data))
        size = min(4 * size, most)


def may_begin_at(descriptor: int, outbox: str, start: int) -> bool:
    """Whether the records before `start` may have ended there; False: the file was replaced."""
    if start == 0 or outbox == protocol.METRICS_FILE or os.pread(descriptor, 1, start - 1) == b"\n":
        return True
    return _is_inside_long_line(descriptor, start)


def _is_inside_long_line(descriptor: int, start: int) -> bool:
    """Whether the bytes from `start` on are the rest of a skipped line."""
    most = protocol.MAX_RECORD
    if start < most or os.pread(descriptor, 1, start - 1) == b"\n":
        return False
    return b"\n" not in os.pread(descriptor, most, start - most)


def _rest_of_long_line(data: bytes) -> Records:
    length = data.find(b"\n") + 1 or len(data)
    return Records([], length, length)


def cut_lines(data: bytes, is_all: bool) -> Records:
    """Lines, each ended by a newline. With `is_all`, a last line without a newline counts if it is JSON."""
    length = data.rfind(b"\n") + 1
    texts = [text.strip("\0") for text in data[: length - 1].decode("utf-8", "replace").split("\n")] if length else []
    rest = data[length:].strip(HOLE)
    if is_all and rest and _is_json(rest):
        texts.append(rest.decode("utf-8", "replace"))
        length = len(data)
    return Records(texts, length, 0)


def cut_frames(data: bytes, is_all: bool) -> Records:
    """Frames of NNI's metrics file: a mark with the payload's length in bytes, its newline included.

    Outside frames, as after a truncated write, the next mark is searched.
    """
    texts = []
    position = skipped = 0
    while position < len(data):
        end = _frame_end(data, position)
        if 0 < end <= len(data):
            texts.append(data[position + _MARK_LENGTH : end - 1].decode("utf-8", "replace"))
            position = end
            continue
        if end > len(data) and not is_all:
            break
        following = _next_mark(data, position + 1)
        skipped += following - position
        position = following
    return Records(texts, position, skipped)


def cut_first(cut: Callable[[bytes, bool], Records], data: bytes, all_: Records) -> Records:
    """The first of the records in `all_`, which `cut` found; all of them if that is not less."""
    end = data.find(b"\n") + 1
    while 0 < end < all_.length:
        first = cut(data[:end], False)
        if first.length:
            return first
        end = data.find(b"\n", end) + 1
    return all_


def _frame_end(data: bytes, position: int) -> int:
    """The end of the frame that begins here, beyond the data if it is incomplete; 0: no frame begins here."""
    mark = _MARK.match(data, position)
    if mark is None:
        return len(data) + 1 if _may_become_mark(data, position) else 0
    end = mark.end() + int(mark.group(1))
    if end <= len(data) and data[end - 1 : end] != b"\n":
        return 0
    return end


def _next_mark(data: bytes, position: int) -> int:
    mark = _MARK.search(data, position)
    if mark is not None:
        return mark.start()
    last = max(position, len(data) - _MARK_LENGTH + 1)
    while last < len(data) and not _may_become_mark(data, last):
        last += 1
    return last


def _may_become_mark(data: bytes, position: int) -> bool:
    """Whether the last bytes could be the beginning of a mark."""
    rest = data[position:]
    if not rest or len(rest) >= _MARK_LENGTH:
        return False
    name = protocol.METRICS_FILE_MARK
    digits = rest[len(name) :]
    return name.startswith(rest[: len(name)]) and (not digits or digits.isdigit())


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
