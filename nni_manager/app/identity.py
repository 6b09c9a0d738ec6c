"""The name by which a manager's folders on other machines are known: one per data directory."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from trial_runner.wire import foreign_files

#: Whoever has none yet; nothing of theirs is anywhere.
NOBODY = "nobody"
_FILE = "identity"


def of(data_directory: Path) -> str:
    """The id of a data directory, made once; one that is moved takes it along. Raises OSError."""
    path = data_directory / _FILE
    if not path.exists():
        foreign_files.write_whole(str(data_directory), path.name, secrets.token_hex(4).encode())
    return path.read_text(encoding="ascii").strip()


def known(data_directory: Path) -> str:
    """The id of a data directory, without making one."""
    with suppress(OSError, ValueError):
        return (data_directory / _FILE).read_text(encoding="ascii").strip()
    return NOBODY
