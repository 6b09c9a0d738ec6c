"""The members of a tar file, one after the other: files, folders and links. Any user may have made the file.

`tarfile` reads a name of any announced length into memory, before a filter is called, and has no filter before Python
3.12 and some patch releases (`test_tarfile_reads_announced_names_into_memory`). Here a header has at most
`MOST_HEADER_BYTES`. Supported: ustar, PAX (`path`, `linkpath`, `size`) and GNU's long names.
"""

import enum
import os
import re
from typing import Callable, Dict, Iterator, NamedTuple, Optional, Tuple

_BLOCK = 512
_CHUNK_BYTES = 256 * 1024
#: Maximum bytes of a name, or of another header before a member.
MOST_HEADER_BYTES = 64 * 1024
_OCTAL = re.compile(rb"[0-7]*")
_RECORD = re.compile(rb"([1-9][0-9]{0,5}) ([^=]+)=")
_PAX_GLOBAL, _PAX, _GNU_NAME, _GNU_TARGET = b"g", b"x", b"L", b"K"


class BadTar(Exception):
    """A tar file that cannot be read; the message ends a sentence about the whole file."""


class Kind(enum.Enum):
    FILE = enum.auto()
    FOLDER = enum.auto()
    LINK = enum.auto()
    OTHER = enum.auto()


_KINDS = {b"0": Kind.FILE, b"\0": Kind.FILE, b"7": Kind.FILE, b"5": Kind.FOLDER, b"2": Kind.LINK}


class Member(NamedTuple):
    """A member of a tar file; its name and target may contain any bytes, in the form of `os.fsdecode`."""

    name: str
    kind: Kind
    #: Size of its content in bytes; 0 without content.
    size: int
    is_executable: bool
    #: The target of a link.
    target: str


class TarReader:
    """A reader of a tar file, which is read once, from the beginning."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """`read(size)`: the next `size` bytes; fewer only at the end."""
        self._read = read
        #: Bytes left of the member's content, and of the padding of its last block.
        self._left = self._padding = 0

    def members(self) -> Iterator[Member]:
        """The members, each before its content, which is skipped unless it is read. Raises BadTar."""
        said: Dict[bytes, bytes] = {}
        for header in iter(self._header, None):
            kind = header[156:157]
            if kind in (_PAX_GLOBAL, _PAX, _GNU_NAME, _GNU_TARGET):
                said.update(_extended(kind, self._extension(header)))
                continue
            yield self._member(header, said)
            said = {}
            for _ in self.content():
                pass

    def content(self) -> Iterator[bytes]:
        """The content of the latest member. Raises BadTar if it is truncated."""
        while self._left:
            part = self._exactly(min(self._left, _CHUNK_BYTES))
            self._left -= len(part)
            yield part
        padding, self._padding = self._padding, 0
        self._exactly(padding)

    def _header(self) -> Optional[bytes]:
        """The next header; None at the end: a block of zeros, or the end of the file. Raises BadTar."""
        block = self._read(_BLOCK)
        if not block.strip(b"\0"):
            return None
        if len(block) < _BLOCK:
            raise BadTar("it ends too early")
        if _number(block[148:156]) not in _sums(block):
            raise BadTar("it is not a tar file, or is damaged")
        return block

    def _extension(self, header: bytes) -> bytes:
        size = _number(header[124:136])
        if size > MOST_HEADER_BYTES:
            raise BadTar("a name or another header in it is longer than {} KiB".format(MOST_HEADER_BYTES // 1024))
        self._expect(size)
        return b"".join(self.content())

    def _member(self, header: bytes, said: Dict[bytes, bytes]) -> Member:
        name = said.get(b"path", _name(header))
        kind = _KINDS.get(header[156:157], Kind.OTHER)
        if kind is Kind.FILE and header[156:157] == b"\0" and name.endswith(b"/"):
            kind = Kind.FOLDER  # as in the oldest tar files
        size = 0
        if kind is Kind.FILE:
            size = _decimal(said[b"size"]) if b"size" in said else _number(header[124:136])
        self._expect(size)
        return Member(
            name=os.fsdecode(name.rstrip(b"/") if kind is Kind.FOLDER else name),
            kind=kind,
            size=size,
            is_executable=bool(_number(header[100:108]) & 0o100),
            target=os.fsdecode(said.get(b"linkpath", _to_nul(header[157:257]))),
        )

    def _expect(self, size: int) -> None:
        self._left, self._padding = size, -size % _BLOCK

    def _exactly(self, size: int) -> bytes:
        data = self._read(size) if size else b""
        if len(data) < size:
            raise BadTar("it ends too early")
        return data


def _sums(block: bytes) -> Tuple[int, int]:
    """Whether the checksum of a header is right, computed over unsigned bytes or, as by some programs, signed ones."""
    summed = block[:148] + b" " * 8 + block[156:]
    unsigned = sum(summed)
    return unsigned, unsigned - 256 * sum(byte > 127 for byte in summed)


def _number(field: bytes) -> int:
    """The number in a header's field: octal digits or, if the first bit is set, binary. Raises BadTar."""
    if field[0] & 0x80:
        if field[0] != 0x80:
            raise BadTar("a number in it is negative or too large")
        return int.from_bytes(field[1:], "big")
    digits = _to_nul(field).strip()
    if _OCTAL.fullmatch(digits) is None:
        raise BadTar("a number in it has characters other than octal digits")
    return int(digits or b"0", 8)


def _decimal(value: bytes) -> int:
    if not value.isdigit() or len(value) > 20:
        raise BadTar("a size in it is not a number")
    return int(value)


def _extended(kind: bytes, data: bytes) -> Dict[bytes, bytes]:
    """The fields of the next member in an extension header, under PAX's names. Raises BadTar."""
    if kind == _PAX:
        return dict(_records(data))
    if kind == _PAX_GLOBAL:
        return {}  # a comment, a time
    return {b"path" if kind == _GNU_NAME else b"linkpath": _to_nul(data)}


def _records(data: bytes) -> Iterator[Tuple[bytes, bytes]]:
    """The records ``LENGTH NAME=VALUE\\n`` of a PAX header of a path or size, as (name, value). Raises BadTar."""
    while data.strip(b"\0"):
        found = _RECORD.match(data)
        end = int(found[1]) if found else 0
        if found is None or end < found.end() + 1 or end > len(data) or data[end - 1 : end] != b"\n":
            raise BadTar("a PAX header in it is damaged")
        if found[2].startswith(b"GNU.sparse."):
            raise BadTar("it contains a sparse file; pack it without --sparse")
        if found[2] in (b"path", b"linkpath", b"size"):
            yield found[2], data[found.end() : end - 1]
        data = data[end:]


def _name(header: bytes) -> bytes:
    name, prefix = _to_nul(header[:100]), _to_nul(header[345:500])
    return prefix + b"/" + name if prefix and header[257:263] == b"ustar\0" else name


def _to_nul(field: bytes) -> bytes:
    return field.partition(b"\0")[0]
