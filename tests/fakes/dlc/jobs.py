"""Jobs: their requests, and the history of their status."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENDED = ("Succeeded", "Failed", "Stopped")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of status: time, status, code and message."""

    moment_s: float
    status: str
    code: str = ""
    message: str = ""
    sub_status: str = ""


@dataclass(kw_only=True)
class Job:
    """A job. `request`: body of CreateJob."""

    id: str
    request: dict[str, Any]
    owner: str
    created_s: float
    history: list[Change] = field(default_factory=list)
    is_held: bool = False
    #: Time of the stop request.
    stopped_s: float | None = None
    #: Number of containers; None: not started.
    containers: int | None = None
    #: Number of earlier runs, which distinguishes their containers.
    restarts: list[dict[str, Any]] = field(default_factory=list)
    most_restarts: int = 0

    @property
    def status(self) -> str:
        return self.history[-1].status if self.history else "Creating"

    @property
    def name(self) -> str:
        return str(self.request["DisplayName"])

    @property
    def run_id(self) -> str:
        """Name of the containers of its current run."""
        return f"{self.id}-{len(self.restarts)}"

    def note(self, now_s: float, status: str, code: str = "", message: str = "", sub_status: str = "") -> None:
        self.history.append(Change(now_s, status, code, message, sub_status))

    def seen_at(self, moment_s: float) -> list[Change]:
        """Its changes until a time; empty: it did not exist."""
        return [change for change in self.history if change.moment_s <= moment_s]

    def since(self, *statuses: str) -> float | None:
        """Time at which it first had one of these statuses."""
        return next((change.moment_s for change in self.history if change.status in statuses), None)


class Jobs:
    """All jobs. `folder`: persistent state."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        #: In order of creation.
        self.by_id: dict[str, Job] = {}
        for job in sorted(map(_read, folder.glob("*.json")), key=lambda job: job.created_s):
            self.by_id[job.id] = job

    def unfinished(self) -> list[Job]:
        return [job for job in self.by_id.values() if job.status not in ENDED]

    def put(self, job: Job) -> None:
        """Store a new or changed job."""
        self.by_id[job.id] = job
        (self._folder / f"{job.id}.json").write_text(json.dumps(dataclasses.asdict(job)))

    def remove(self, id: str) -> None:
        del self.by_id[id]
        (self._folder / f"{id}.json").unlink(missing_ok=True)


def _read(file: Path) -> Job:
    told = json.loads(file.read_text())
    return Job(**{**told, "history": [Change(**change) for change in told["history"]]})
