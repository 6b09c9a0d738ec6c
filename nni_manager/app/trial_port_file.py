"""The trial listener's port, kept for the next daemon: jobs that run know no other."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPort:
    port: int
    #: Experiments whose jobs may have been told of it; None: an earlier version did not say.
    experiments: frozenset[str] | None
    #: Where it was to be; 0: anywhere, or an earlier version did not say.
    expected: int = 0


class TrialPortFile:
    """There while the listener is open, and after a daemon that ended or was killed. Blocks."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> StoredPort | None:
        """None: there is none, or nothing that means anything."""
        try:
            entry = json.loads(self._path.read_text(encoding="utf-8"))
            port, experiments, expected = entry["port"], entry.get("experiments"), entry.get("expected")
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not isinstance(port, int) or not 0 < port < 65536:
            return None
        return StoredPort(
            port=port, experiments=frozenset(map(str, experiments)) if isinstance(experiments, list) else None,
            expected=expected if isinstance(expected, int) else 0,
        )  # fmt: skip

    def write(self, port: int, experiments: Collection[str], expected: int) -> None:
        """Raises OSError."""
        draft = self._path.with_suffix(".tmp")
        draft.write_text(
            json.dumps({"port": port, "experiments": sorted(experiments), "expected": expected}), encoding="utf-8"
        )
        draft.replace(self._path)

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)
