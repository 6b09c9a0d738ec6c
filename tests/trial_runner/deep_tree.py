"""Folders nested deeper than any path may be long, as a trial or an archive may leave them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def place_for_deep_trees() -> Iterator[Path]:
    """Beside pytest's, on the same file system: it could not remove them itself, and neither could the next run."""
    place = Path(tempfile.mkdtemp(prefix="nni-deep-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    try:
        yield place
    finally:
        subprocess.run([shutil.which("rm") or "rm", "-rf", place], check=True)


def make_deep_tree(folder: Path, levels: int) -> None:
    """Each level has a file."""
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _ in range(levels):
            Path("file").touch()
            os.mkdir("a-folder")
            os.chdir("a-folder")
    finally:
        os.fchdir(before)
        os.close(before)


@contextmanager
def deep_tree_at(path: Path, levels: int) -> Iterator[None]:
    """In a folder of pytest's, where it is only meanwhile."""
    with place_for_deep_trees() as place:
        (place / "tree").mkdir()
        make_deep_tree(place / "tree", levels)
        (place / "tree").rename(path)
        try:
            yield
        finally:
            if path.exists():
                path.rename(place / "tree")
