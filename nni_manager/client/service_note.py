"""A note in the data directory of the daemon's open service. It outlasts a daemon that is killed."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trial_runner.wire import foreign_files

#: In the data directory.
FILE = "service.json"


def note(data_directory: Path, address: str, words: Sequence[str]) -> None:
    """Notes the address of a service that is open, and the command line that opens it again. Raises OSError."""
    entry = {"address": address, "command": shlex.join(words)}
    foreign_files.write_whole(os.path.realpath(data_directory), FILE, json.dumps(entry).encode())


def forget(data_directory: Path) -> None:
    """Removes the note: the service was closed on purpose."""
    with suppress(OSError):
        (data_directory / FILE).unlink(missing_ok=True)


def lost_service(data_directory: Path) -> str:
    """A sentence on the service that a killed daemon had open; empty: there was none."""
    try:
        noted = json.loads((data_directory / FILE).read_text(encoding="utf-8"))
        address, command = str(noted["address"]), str(noted["command"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f"nothing listens at {address} any more: the daemon that did was killed; `{command}` opens it again"
