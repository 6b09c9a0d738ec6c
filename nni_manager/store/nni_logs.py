"""The names that an experiment's logs have at NNI's, for its `nnictl log stdout` and `log stderr`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_NAMES = {"nnimanager.log": "nnictl_stdout.log", "dispatcher.log": "nnictl_stderr.log"}


def name(log: Path) -> None:
    """Makes a link with NNI's name beside a log that is there; what NNI itself wrote under that name stays."""
    with suppress(OSError):  # that the name is taken, or cannot be: nothing of ours needs it
        log.with_name(_NAMES[log.name]).symlink_to(log.name)
