"""Packing: list, write, list again; what stood still meanwhile gets the name of its content."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nni_manager.platform_kit.archive import limits, tarball
from nni_manager.platform_kit.archive.listing import Listing, first_difference
from nni_manager.platform_kit.archive.tree import Changed, Tree
from nni_manager.platform_kit.archive.walk import walk

#: A file may be written while it is packed; this often we try before we say so.
ATTEMPTS = 2


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


def pack(code_directory: Path, target_folder: Path) -> Archive:
    """Packs what `.nniignore` does not leave out into `target_folder`/<hash>.tar.gz; reuses one that is there.

    The same content gives the same bytes, whoever owns the files and whenever they were written. Folders are kept even
    when empty, and `.nniignore` files travel. `target_folder` is made when it is missing, and is never packed itself.
    Blocks, ten seconds and more for 300 MB; coroutines call it with `asyncio.to_thread`.

    Raises InvalidInput when the directory cannot travel (missing, too large, unreadable, a link that leads out, a
    socket or device, or it keeps changing), OSError when `target_folder` cannot be written.
    """
    target_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Tree(code_directory) as tree:
        for _ in range(ATTEMPTS):
            try:
                return _attempt(tree, target_folder)
            except Changed as change:
                path = change.path
        raise tree.refusal(path, "keeps changing while it is packed; try again when nothing writes to it")


def _attempt(tree: Tree, target_folder: Path) -> Archive:
    own = os.stat(target_folder)
    listing = walk(tree, leave_out=own)
    limits.check(listing, tree.directory)
    with _temporary(target_folder) as file:
        content_hash = tarball.write(tree, listing, file)
        _check_unchanged(listing, walk(tree, leave_out=own))
        path = _settle(file, target_folder / f"{content_hash}.tar.gz")
    return Archive(path=path, hash=content_hash, files=listing.files, bytes=listing.bytes)


@contextmanager
def _temporary(folder: Path) -> Iterator[IO[bytes]]:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".packing-", delete=False) as file:
        try:
            yield file
        finally:
            Path(file.name).unlink(missing_ok=True)


def _check_unchanged(before: Listing, after: Listing) -> None:
    if before != after:
        raise Changed(first_difference(before, after))


def _settle(file: IO[bytes], path: Path) -> Path:
    # an archive that is there may be on its way to a machine right now: it stays the file it is
    if not path.exists():
        file.flush()
        os.fsync(file.fileno())
        os.replace(file.name, path)
    return path
