"""A stretch of a file in an attempt's folder; no path leads out of it."""

from __future__ import annotations

from pathlib import Path

from nni_manager.domain.errors import NotFound


def read_stretch(directory: Path, name: str, offset: int, limit: int) -> bytes:
    """At most `limit` bytes from `offset` (negative: from the end). Blocks. Raises NotFound."""
    try:
        path = _inside(directory, name)
        with path.open("rb") as file:
            start = offset if offset >= 0 else max(0, path.stat().st_size + offset)
            file.seek(start)
            return file.read(limit)
    except (OSError, ValueError, RuntimeError):  # missing, no legal path, a loop of links
        raise NotFound(f"there is no file {name!r} that can be read in {directory.name}") from None


def _inside(directory: Path, name: str) -> Path:
    """Raises ValueError when it is no file of the folder, wherever links lead."""
    root = directory.resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        raise ValueError(name)
    return path
