"""What the service remembers of its jobs: one JSON file each, so that it outlives the process."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ENDED = ("Succeeded", "Failed", "Stopped")


@dataclass(kw_only=True)
class Job:
    """Times are seconds since the epoch."""

    id: str
    request: dict[str, Any]
    owner: str
    created_s: float
    #: (since when, status), the last one is now.
    history: list[tuple[float, str]] = field(default_factory=list)
    is_held: bool = False
    #: Somebody asked it to stop, at this time.
    stopped_s: float | None = None
    is_killed: bool = False
    #: How many there are, once it has started.
    containers: int | None = None

    @property
    def status(self) -> str:
        return self.history[-1][1]

    @property
    def name(self) -> str:
        return str(self.request["DisplayName"])

    def note(self, now_s: float, status: str) -> None:
        if not self.history or self.status != status:
            self.history.append((now_s, status))

    def status_at(self, moment_s: float) -> str | None:
        """None: it did not exist."""
        return next((status for since_s, status in reversed(self.history) if since_s <= moment_s), None)

    def since(self, *statuses: str) -> float | None:
        """When it was first in one of them."""
        return next((since_s for since_s, status in self.history if status in statuses), None)


class Jobs:
    """All of them, in the order in which they were created."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        found = [Job(**json.loads(path.read_text())) for path in folder.glob("*.json")]
        self.by_id = {job.id: job for job in sorted(found, key=lambda job: job.created_s)}
        self._finished: set[str] = set()

    def unfinished(self) -> list[Job]:
        self._finished |= {id for id, job in self.by_id.items() if id not in self._finished and job.status in ENDED}
        return [job for id, job in self.by_id.items() if id not in self._finished]

    def put(self, job: Job) -> None:
        self.by_id[job.id] = job
        path = self._folder / f"{job.id}.json"
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(job)))
        os.replace(draft, path)

    def remove(self, id: str) -> None:
        del self.by_id[id]
        (self._folder / f"{id}.json").unlink()
