"""Copies a code directory with the same files, limits and errors as an archive, but without compression."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from nni_manager.code_archive.packing import ATTEMPTS
from nni_manager.code_archive.tree import Changed, Entry, Folder, Tree, join
from nni_manager.code_archive.walk import check_limits, stamp, walk


def copy(code_directory: Path, target: Path) -> None:
    """Copy files that `.nniignore` does not exclude to the folder `target`; links stay links. Blocks.

    Raises InvalidInput like `packing.pack`, OSError if `target` cannot be written.
    """
    with Tree(code_directory) as tree:
        for _ in range(ATTEMPTS):
            try:
                listing = walk(tree, leave_out=os.stat(target))
                check_limits(listing, tree.directory)
                for folder in listing.folders:
                    _copy_folder(tree, folder, target)
                return
            except Changed as change:
                path = change.path
        raise tree.refusal(path, "keeps changing while it is copied; try again when nothing writes to it")


def _copy_folder(tree: Tree, folder: Folder, target: Path) -> None:
    os.makedirs(target / folder.path, exist_ok=True)
    with tree.folder(folder.path) as descriptor:
        for entry in folder.entries:
            path = join(folder.path, entry.name)
            (target / path).unlink(missing_ok=True)  # of the attempt before
            if entry.target:
                os.symlink(entry.target, target / path)
            else:
                _copy_file(tree, descriptor, path, entry, target)


def _copy_file(tree: Tree, folder: int, path: str, entry: Entry, target: Path) -> None:
    with tree.reading(path):
        descriptor = tree.open_file(folder, entry.name)
    if descriptor is None:
        raise Changed(path)
    with open(descriptor, "rb") as source, open(target / path, "wb") as copied:
        if stamp(os.fstat(descriptor)) != entry.stamp:
            raise Changed(path)
        shutil.copyfileobj(source, copied)
        os.fchmod(copied.fileno(), 0o755 if entry.is_executable else 0o644)
