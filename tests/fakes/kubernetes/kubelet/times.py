"""Times at which the lines of a log were written, which a container runtime records but a plain file does not.

A file next to each log contains its length at each poll. A line's time is that of the first poll that found it
complete, so it is never too early.
"""

from __future__ import annotations

import bisect
import datetime
from pathlib import Path


class Times:
    """Of one log file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._noted = noted(path)
        self._at = 0

    def since(self, data: bytes, moment: str, seconds: int | None) -> bytes:
        """Lines written at or after a time, including those of the same second."""
        if moment:
            start = datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
        else:
            start = datetime.datetime.now(datetime.UTC).timestamp() - float(seconds or 0)
        offset = max((length for length, at in self._noted if at < start), default=0)
        return data[offset:]

    def stamped(self, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        stamped = []
        for line in lines:
            self._at += len(line)
            stamped.append(self._time(self._at).encode() + b" " + line)
        return b"".join(stamped)

    def _time(self, offset: int) -> str:
        at = bisect.bisect_left(self._noted, (offset, 0.0))
        moment = self._noted[at][1] if at < len(self._noted) else datetime.datetime.now(datetime.UTC).timestamp()
        return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


_lengths: dict[Path, list[tuple[int, float]]] = {}


def note(path: Path) -> None:
    """Poll a log."""
    try:
        length = path.stat().st_size
    except FileNotFoundError:
        return
    held = _lengths.setdefault(path, [])
    if not held or held[-1][0] != length:
        held.append((length, datetime.datetime.now(datetime.UTC).timestamp()))


def noted(path: Path) -> list[tuple[int, float]]:
    note(path)
    return _lengths[path][:] if path in _lengths else []


def forget(folder: Path) -> None:
    for path in [path for path in _lengths if path.is_relative_to(folder)]:
        del _lengths[path]
