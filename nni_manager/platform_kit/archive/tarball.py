"""Writing a listing as a compressed tar file; the same content gives the same bytes.

Owners, times and permissions are evened out, but for the x bit. PAX headers carry long names and any bytes in them.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
from typing import IO, cast

from nni_manager.platform_kit.archive.listing import Entry, Folder, Listing
from nni_manager.platform_kit.archive.tree import Changed, Tree
from nni_manager.platform_kit.archive.walk import stamp

#: 1 January 1980: zip files, and so Python wheels, know no earlier time.
_TIME_S = 315_532_800
_LEVEL = 6
_CHUNK_BYTES = 256 * 1024
#: Another number when the same content is to be packed in another way.
_FORMAT = b"code archive 1"


def write(tree: Tree, listing: Listing, target: IO[bytes]) -> str:
    """Answers the hash of the content, 64 hexadecimal digits. Raises Changed, InvalidInput, OSError for `target`."""
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=target, mtime=0) as zipped,
        tarfile.TarFile(
            mode="w", fileobj=zipped, format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape",
            copybufsize=_CHUNK_BYTES,
        ) as tar,
    ):  # fmt: skip
        writer = _Writer(tree, tar)
        for folder in listing.folders:
            writer.add(folder)
    return writer.content.hexdigest()


class _Writer:
    def __init__(self, tree: Tree, tar: tarfile.TarFile) -> None:
        self._tree = tree
        self._tar = tar
        #: Records of kind, path, and target of a link or digest of a file; each part ends with a NUL.
        self.content = hashlib.sha256(_FORMAT + b"\0")

    def add(self, folder: Folder) -> None:
        if folder.path:
            self._tar.addfile(_member(folder.path, tarfile.DIRTYPE, 0o755))
            self._note("folder", folder.path, "")
        with self._tree.folder(folder.path) as descriptor:
            for entry in folder.entries:
                path = folder.path_of(entry.name)
                if entry.target:
                    self._add_link(path, entry.target)
                else:
                    self._add_file(descriptor, path, entry)

    def _add_link(self, path: str, target: str) -> None:
        member = _member(path, tarfile.SYMTYPE, 0o777)
        member.linkname = target
        self._tar.addfile(member)
        self._note("link", path, target)

    def _add_file(self, folder: int, path: str, entry: Entry) -> None:
        member = _member(path, tarfile.REGTYPE, 0o755 if entry.is_executable else 0o644)
        member.size = entry.size
        with self._tree.reading(path):
            descriptor = self._tree.open_file(folder, entry.name)
        if descriptor is None:
            raise Changed(path)
        with open(descriptor, "rb") as file:
            if stamp(os.fstat(descriptor)) != entry.stamp:
                raise Changed(path)
            source = _Source(self._tree, path, file)
            # of a file object it needs no more than `read`
            self._tar.addfile(member, cast(IO[bytes], source))
        self._note("executable" if entry.is_executable else "file", path, source.digest.hexdigest())

    def _note(self, kind: str, path: str, what: str) -> None:
        for part in (kind, path, what):
            self.content.update(os.fsencode(part) + b"\0")


class _Source:
    """A file as tarfile reads it: hashes what passes through, and tells a file that became shorter."""

    def __init__(self, tree: Tree, path: str, file: IO[bytes]) -> None:
        self._tree = tree
        self._path = path
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        with self._tree.reading(self._path):
            data = self._file.read(size)
        if len(data) < size:
            raise Changed(self._path)
        self.digest.update(data)
        return data


def _member(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.type, member.mode, member.mtime = kind, mode, _TIME_S
    return member
