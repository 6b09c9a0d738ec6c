"""The time of each change of a job, to measure the delay until others know it."""

from __future__ import annotations

import time

from tests.fakes.kubernetes.store import Change


class Timeline:
    """Listens to the store. Custom resource → name → status → milliseconds since the epoch."""

    def __init__(self) -> None:
        self.moments: dict[str, dict[str, dict[str, float]]] = {}

    def hear(self, change: Change) -> None:
        if change.after is None or "." not in change.key:
            return
        status = change.after.get("status") or {}
        words = [each["type"] for each in status.get("conditions") or [] if each.get("status") == "True"]
        words += [str(status[name]) for name in ("state", "phase") if status.get(name)]
        seen = self.moments.setdefault(change.key, {}).setdefault(change.last["metadata"]["name"], {})
        for word in words:
            seen.setdefault(word, time.time() * 1000)
