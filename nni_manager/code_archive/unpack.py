"""Unpacking a code archive that somebody sent: nothing is written outside the folder, and no more than may travel.

What is not as `packing` writes it is refused. A member's folder must itself have come as a folder before, so that
nothing is ever written through a symbolic link.
"""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path
from typing import IO

from nni_manager.code_archive.limits import FAR_TOO_MANY, MOST_BYTES, MOST_FILES, MOST_LEVELS
from nni_manager.code_archive.tar_reader import BadTar, Kind, Member, TarReader
from nni_manager.domain.errors import InvalidInput

_CHUNK_BYTES = 256 * 1024
#: What headers, padding and the end of a tar file may add to its files.
_OVERHEAD_BYTES = 64 * 1024 * 1024
#: What the disk says of names that cannot be.
_BAD_NAMES = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ELOOP)


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks into `folder`, which must be empty; what is in it when this raises is of no use. Blocks.

    Raises InvalidInput for what is no code archive or more than may travel, OSError when `folder` cannot be written.
    """
    unpacker = _Unpacker(folder)
    try:
        with open(archive, "rb") as file:
            tar = TarReader(_Inflated(file).read)
            for member in tar.members():
                unpacker.add(tar, member)
        unpacker.check_links()
    except (BadTar, zlib.error, EOFError, UnicodeError) as error:
        raise InvalidInput(f"the code archive cannot be read ({error}); pack it again") from None
    except OSError as error:
        if error.errno not in _BAD_NAMES:
            raise
        raise InvalidInput(f"the code archive holds a name that no file can have ({error.strerror})") from None


class _Inflated:
    """The decompressed bytes of a gzip file; no more than any archive of ours has."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(wbits=31)  # 31: gzip, with its check sum
        self._left = MOST_BYTES + _OVERHEAD_BYTES

    def read(self, size: int) -> bytes:
        """The next `size` decompressed bytes, or all that are left. Raises EOFError when the file breaks off."""
        parts: list[bytes] = []
        while size > 0 and not self._inflate.eof:
            data = self._inflate.unconsumed_tail or self._file.read(_CHUNK_BYTES)
            if not data:
                raise EOFError("it ends too early")
            part = self._inflate.decompress(data, size)
            self._left -= len(part)
            if self._left < 0:
                raise InvalidInput(_too_large())
            size -= len(part)
            parts.append(part)
        return b"".join(parts)


class _Unpacker:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders = {""}
        self._links: list[str] = []
        self._files = 0
        self._bytes = 0

    def add(self, tar: TarReader, member: Member) -> None:
        path = self._place(member)
        if member.kind is Kind.FOLDER:
            self._add_folder(member.name, path)
            return
        self._count(member)
        if member.kind is Kind.FILE:
            _write(tar, member, path)
        elif member.kind is Kind.LINK and member.target and "\0" not in member.target:
            os.symlink(member.target, path)
            self._links.append(path)
        else:
            raise _refused(member.name, "is neither file, folder nor symbolic link")

    def check_links(self) -> None:
        """Refuses links that lead out of the archive; called once all is there: a link may lead to what comes later."""
        root = os.path.realpath(self._folder)
        for path in self._links:
            target = os.readlink(path)
            found = _real(path)
            if found is None:
                raise _refused(os.path.relpath(path, self._folder), "is a link that leads through too many others")
            if os.path.isabs(target) or os.path.commonpath((root, found)) != root:
                raise _refused(os.path.relpath(path, self._folder), "is a link that leads out of the archive")

    def _place(self, member: Member) -> str:
        name = member.name
        parent, _, last = name.rpartition("/")
        if last in ("", ".", "..") or name[0] == "/" or "\0" in name or parent not in self._folders:
            raise _refused(name, "does not lie in a folder of the archive")
        if name.count("/") >= MOST_LEVELS:
            raise InvalidInput(f"the code archive has folders nested more than {MOST_LEVELS} deep; nest them less")
        path = os.path.join(self._folder, name)
        if os.path.lexists(path):
            raise _refused(name, "is in it twice")
        return path

    def _add_folder(self, name: str, path: str) -> None:
        if len(self._folders) > FAR_TOO_MANY:
            raise InvalidInput(f"the code archive holds more than {FAR_TOO_MANY} folders; send less")
        os.mkdir(path, 0o700)
        self._folders.add(name)

    def _count(self, member: Member) -> None:
        self._files += 1
        self._bytes += member.size
        if self._files > MOST_FILES:
            raise InvalidInput(f"the code archive holds more than {MOST_FILES} files; list some in .nniignore")
        if self._bytes > MOST_BYTES:
            raise InvalidInput(_too_large())


def _real(path: str) -> str | None:
    """The path that a link leads to; None where Python cannot follow so many links."""
    try:
        return os.path.realpath(path)
    except RecursionError:
        return None


def _write(tar: TarReader, member: Member, path: str) -> None:
    mode = 0o700 if member.is_executable else 0o600
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode), "wb") as file:
        for part in tar.content():
            file.write(part)


def _refused(name: str, what: str) -> InvalidInput:
    return InvalidInput(f"the code archive is not as this manager packs it: {name!r} {what}")


def _too_large() -> str:
    return f"the code archive holds more than {MOST_BYTES // 2**20} MB; list what trials do not need in .nniignore"
