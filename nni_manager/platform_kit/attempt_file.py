"""A stretch of a file in an attempt's folder; no path leads out of it, and no link is followed."""

from __future__ import annotations

from pathlib import Path

from nni_manager.domain.errors import NotFound
from trial_runner.wire import foreign_files


def read_stretch(directory: Path, name: str, offset: int, limit: int) -> bytes:
    """At most `limit` bytes of a file in `directory`, from `offset` (negative: from the end). Blocks. Raises
    NotFound."""
    try:
        return foreign_files.read(str(directory), name, offset, limit)
    except OSError:
        raise NotFound(f"there is no file {name!r} that can be read in {directory.name}") from None
