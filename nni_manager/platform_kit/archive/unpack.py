"""Unpacking a code archive that somebody sent: nothing is written outside the folder, and no more than may travel.

What is not as `tarball` writes it is refused. A member's folder must itself have come as a folder before, so that
nothing is ever written through a symbolic link.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from nni_manager.domain.errors import InvalidInput
from nni_manager.platform_kit.archive.limits import FAR_TOO_MANY, MOST_BYTES, MOST_FILES, MOST_LEVELS

_CHUNK_BYTES = 256 * 1024
#: What headers, padding and the end of a tar file may add to its files.
_OVERHEAD_BYTES = 64 * 1024 * 1024


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks into `folder`, which must be empty; what is in it when this raises is of no use. Blocks.

    Raises InvalidInput for what is no code archive or more than may travel, OSError when `folder` cannot be written.
    """
    unpacker = _Unpacker(folder)
    with _opened(archive) as tar:
        for member in tar:
            unpacker.add(tar, member)
    unpacker.check_links()


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        with open(archive, "rb") as file:
            inflated = _Inflated(file)  # it needs no more of a file than `read`
            with tarfile.open(fileobj=cast(IO[bytes], inflated), mode="r|") as tar:
                yield tar
    except (tarfile.TarError, zlib.error, EOFError, UnicodeError) as error:
        raise InvalidInput(f"the code archive cannot be read ({error}); pack it again") from None


class _Inflated:
    """The decompressed bytes of a gzip file, as tarfile reads them; no more than any archive of ours has."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(wbits=31)  # 31: gzip, with its check sum
        self._left = MOST_BYTES + _OVERHEAD_BYTES

    def read(self, size: int) -> bytes:
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

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = self._place(member)
        if member.isdir():
            self._add_folder(member.name, path)
            return
        self._count(member)
        if member.isreg():
            _write(tar, member, path)
        elif member.issym() and member.linkname and "\0" not in member.linkname:
            os.symlink(member.linkname, path)
            self._links.append(path)
        else:
            raise _refused(member.name, "is neither file, folder nor symbolic link")

    def check_links(self) -> None:
        """Once all is there: a link may lead to what comes later."""
        root = os.path.realpath(self._folder)
        for path in self._links:
            target = os.readlink(path)
            found = os.path.realpath(path)
            if os.path.isabs(target) or os.path.commonpath((root, found)) != root:
                raise _refused(os.path.relpath(path, self._folder), "is a link that leads out of the archive")

    def _place(self, member: tarfile.TarInfo) -> str:
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

    def _count(self, member: tarfile.TarInfo) -> None:
        self._files += 1
        self._bytes += max(member.size, 0)
        if self._files > MOST_FILES:
            raise InvalidInput(f"the code archive holds more than {MOST_FILES} files; list some in .nniignore")
        if self._bytes > MOST_BYTES:
            raise InvalidInput(_too_large())


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    source = tar.extractfile(member)
    assert source is not None  # a regular file has contents
    mode = 0o700 if member.mode & 0o100 else 0o600
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode), "wb") as file:
        shutil.copyfileobj(source, file, _CHUNK_BYTES)


def _refused(name: str, what: str) -> InvalidInput:
    return InvalidInput(f"the code archive is not as this manager packs it: {name!r} {what}")


def _too_large() -> str:
    return f"the code archive holds more than {MOST_BYTES // 2**20} MB; list what trials do not need in .nniignore"
