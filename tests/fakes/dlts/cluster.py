"""The cluster behind the dashboard: jobs, their containers, and what is known of them after a restart."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes import containers

ACTIVE = ("unapproved", "queued", "scheduling", "running", "pausing", "paused", "killing")
_KILLABLE = ("unapproved", "queued", "scheduling", "running", "pausing", "paused")


@dataclass
class Job:
    jobId: str
    userName: str
    vcName: str
    params: dict[str, Any]
    time_s: float
    jobStatus: str = "queued"
    errorMsg: str | None = None
    is_begun: bool = False
    started_s: float = 0.0
    ended_s: float = 0.0
    kill_at_s: float = 0.0
    #: Said of it instead of its status.
    odd_status: str = ""
    containers: list[str] = field(default_factory=list)

    @property
    def shown(self) -> str:
        return self.odd_status or self.jobStatus


class Cluster:
    """`folder`: everything that outlives this process. `clock`: seconds since the epoch."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self.folder = folder
        self.clock = clock
        self.hold = False
        #: Jobs have no containers, and end well after so many seconds.
        self.pretended_s: float | None = None
        self.kill_grace_s = 1.0
        #: (folder of this machine, where jobs have it), of the users' homes.
        self.mounts: list[list[str]] = []
        self.jobs: dict[str, Job] = {}
        for path in sorted((folder / "jobs").glob("*/job.json")):
            job = Job(**json.loads(path.read_text()))
            self.jobs[job.jobId] = job

    def add(self, job: Job) -> None:
        self.jobs[job.jobId] = job
        self._save(job)
        self.advance()

    def remove(self, id: str) -> None:
        job = self.jobs.pop(id)
        self._destroy(job)
        shutil.rmtree(self.folder / "jobs" / id)

    def kill(self, job: Job) -> bool:
        """False: not from this status."""
        self.advance()
        if job.jobStatus not in _KILLABLE:
            return False
        job.kill_at_s = self.clock() + (self.kill_grace_s if job.jobStatus == "running" else 0)
        job.jobStatus = "killing"
        for folder in job.containers:
            containers.terminate(Path(folder))
        self._save(job)
        self.advance()
        return True

    def end(self, job: Job, status: str, message: str) -> None:
        self._end(job, status, message)

    @property
    def is_busy(self) -> bool:
        return any(job.jobStatus in ACTIVE for job in self.jobs.values())

    def advance(self) -> None:
        """What has happened since."""
        for job in list(self.jobs.values()):
            if job.jobStatus in ACTIVE:
                self._advance(job)

    def _advance(self, job: Job) -> None:
        code = containers.exit_code(Path(job.containers[-1])) if job.containers else None
        if job.jobStatus == "killing":
            if code is not None or self.clock() >= job.kill_at_s:
                self._end(job, "killed", None)
        elif job.jobStatus in ("queued", "scheduling"):
            if job.is_begun or not self.hold:
                self._start(job)
        elif job.jobStatus == "running" and code is not None:
            self._end(job, "failed" if code else "finished", f"pod failed with exit code {code}" if code else None)
        elif job.jobStatus == "running" and self.pretended_s is not None:
            if self.clock() >= job.started_s + self.pretended_s:
                self._end(job, "finished", None)
                job.ended_s = job.started_s + self.pretended_s  # nobody may have looked since

    def _start(self, job: Job) -> None:
        job.jobStatus, job.started_s = "running", self.clock()
        if self.pretended_s is None:
            folder = self.folder / "jobs" / job.jobId / str(len(job.containers))
            environment = {one["name"]: one["value"] for one in job.params.get("env", [])}
            environment |= {"DLTS_JOB_ID": job.jobId, "DLWS_VC_NAME": job.vcName, "DLWS_USER_EMAIL": job.userName}
            mounts = [containers.Mount(Path(source), Path(target)) for source, target in self.mounts]
            containers.start(folder, job.params["cmd"], environment, mounts)
            job.containers.append(str(folder))
        self._save(job)

    def _end(self, job: Job, status: str, message: str | None) -> None:
        self._destroy(job)
        job.jobStatus, job.errorMsg, job.ended_s = status, message, self.clock()
        self._save(job)

    def _destroy(self, job: Job) -> None:
        for folder in job.containers:
            containers.destroy(Path(folder))

    def _save(self, job: Job) -> None:
        path = self.folder / "jobs" / job.jobId / "job.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(job)))
        os.replace(draft, path)
