"""Packs code: lists files, writes a compressed tar file named by the hash of its content, lists again.

Owners, times and permissions are normalized, except the x bit. PAX headers hold long names with any bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from nni_manager.code_archive.tree import Changed, Entry, Folder, Listing, Tree, first_difference, join
from nni_manager.code_archive.walk import check_limits, stamp, walk
from nni_manager.domain.errors import InvalidInput
from trial_runner.wire import code_archive

#: Tries before a directory that changes while it is packed is refused.
ATTEMPTS = 2


class NotWanted(Exception):
    """Packing was cancelled, because `is_wanted` returned false."""


def always() -> bool:
    """The default of `is_wanted`: never cancel."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A packed code directory."""

    path: Path
    #: SHA-256 in hex of what is inside (names, x bits, link targets, contents), not of the compressed bytes.
    hash: str
    #: Number of files and symbolic links.
    files: int
    #: Size of the files before compression.
    bytes: int


def pack(code_directory: Path, target_folder: Path, is_wanted: Callable[[], bool] = always) -> Archive:
    """Pack files that `.nniignore` does not exclude to `target_folder`/<hash>.tar.gz; reuse an existing archive.

    The same content gives the same bytes, independent of owners and times. Empty folders and `.nniignore` files are
    included. `target_folder` is created if missing, and never packed itself. Blocks for ten seconds or more for 300 MB,
    so coroutines call it in a thread. `is_wanted` is called every 256 KB; false raises NotWanted and leaves nothing in
    `target_folder`.

    Raises InvalidInput if the directory cannot be packed (missing, too large, unreadable, a link that leads out, a
    socket or device, or it keeps changing), OSError if `target_folder` cannot be written.
    """
    target_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Tree(code_directory) as tree:
        for _ in range(ATTEMPTS):
            try:
                return _attempt(tree, target_folder, is_wanted)
            except Changed as change:
                path = change.path
        raise tree.refusal(path, "keeps changing while it is packed; try again when nothing writes to it")


def require_small(code_directory: Path) -> None:
    """Check, without reading files, that a code directory can be packed. Blocks. Raises InvalidInput, like `pack`."""
    nothing = os.stat(os.devnull)  # no folder
    with Tree(code_directory) as tree:
        for _ in range(ATTEMPTS):
            with suppress(Changed):  # packing, which comes later, reports it if it still changes
                check_limits(walk(tree, leave_out=nothing), tree.directory)
                return


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an uploaded archive into the empty `folder`, whose content is useless after an error. Blocks.

    Raises InvalidInput for an invalid or too large archive, OSError if `folder` cannot be written.
    """
    try:
        code_archive.unpack(str(archive), str(folder))
    except code_archive.DamagedArchive as error:
        raise InvalidInput(f"the code archive cannot be read ({error.reason}); pack it again") from None
    except code_archive.BadArchive as error:
        raise InvalidInput(f"the code archive {error.reason}") from None


def _attempt(tree: Tree, target_folder: Path, is_wanted: Callable[[], bool]) -> Archive:
    own = os.stat(target_folder)
    listing = walk(tree, leave_out=own)
    check_limits(listing, tree.directory)
    with _temporary(target_folder) as file:
        content_hash = write_tar(tree, listing, file, is_wanted)
        after = walk(tree, leave_out=own)
        if listing != after:
            raise Changed(first_difference(listing, after))
        path = _settle(file, target_folder / f"{content_hash}.tar.gz")
    return Archive(path=path, hash=content_hash, files=listing.files, bytes=listing.bytes)


@contextmanager
def _temporary(folder: Path) -> Iterator[IO[bytes]]:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".packing-", delete=False) as file:
        try:
            yield file
        finally:
            Path(file.name).unlink(missing_ok=True)


def _settle(file: IO[bytes], path: Path) -> Path:
    # do not replace an existing archive, which may be in transfer to a machine
    if not path.exists():
        file.flush()
        os.fsync(file.fileno())
        os.replace(file.name, path)
    return path


#: 1 January 1980: zip files, and so Python wheels, know no earlier time.
_TIME_S = 315_532_800
_LEVEL = 6
_CHUNK_BYTES = 256 * 1024
#: Another number when the same content is to be packed in another way.
_FORMAT = b"code archive 1"


def write_tar(tree: Tree, listing: Listing, target: IO[bytes], is_wanted: Callable[[], bool] = always) -> str:
    """Write the listed files as a compressed tar file; return the hash of the content, 64 hexadecimal digits.

    Raises Changed, InvalidInput, NotWanted, and OSError for `target`.
    """
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=target, mtime=0) as zipped,
        tarfile.TarFile(
            mode="w",
            fileobj=zipped,
            format=tarfile.PAX_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
            copybufsize=_CHUNK_BYTES,
        ) as tar,
    ):
        writer = _Writer(tree, tar, is_wanted)
        for folder in listing.folders:
            writer.add(folder)
    return writer.content.hexdigest()


class _Writer:
    def __init__(self, tree: Tree, tar: tarfile.TarFile, is_wanted: Callable[[], bool]) -> None:
        self._tree = tree
        self._tar = tar
        self._is_wanted = is_wanted
        #: Records of kind, path, and target of a link or digest of a file; each part ends with a NUL.
        self.content = hashlib.sha256(_FORMAT + b"\0")

    def add(self, folder: Folder) -> None:
        if folder.path:
            self._tar.addfile(_member(folder.path, tarfile.DIRTYPE, 0o755))
            self._note("folder", folder.path, "")
        with self._tree.folder(folder.path) as descriptor:
            for entry in folder.entries:
                path = join(folder.path, entry.name)
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
            source = _Source(self._tree, path, file, self._is_wanted)
            # it needs only `read` of a file object
            self._tar.addfile(member, cast(IO[bytes], source))
        self._note("executable" if entry.is_executable else "file", path, source.digest.hexdigest())

    def _note(self, kind: str, path: str, what: str) -> None:
        for part in (kind, path, what):
            self.content.update(os.fsencode(part) + b"\0")


class _Source:
    """A file for tarfile that hashes the data and detects a file that became shorter."""

    def __init__(self, tree: Tree, path: str, file: IO[bytes], is_wanted: Callable[[], bool]) -> None:
        self._tree = tree
        self._path = path
        self._file = file
        self._is_wanted = is_wanted
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        if not self._is_wanted():
            raise NotWanted(self._path)
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
