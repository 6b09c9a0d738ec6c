"""The database of jobs, and the cluster manager that processes it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.fakes import sandbox
from tests.fakes.dlts import pod
from tests.fakes.sandbox import Mount

#: Statuses that are always listed; of other jobs only the newest are.
ACTIVE = ("unapproved", "queued", "scheduling", "running", "pausing", "paused", "killing")
KILLABLE = ("unapproved", "queued", "scheduling", "running", "pausing", "paused")
#: Maximum length of an id in the database.
_MOST = 50


@dataclass(slots=True)
class Job:
    """A row; field names are the service's. `forced`: a status set by a test. Times in s since the epoch."""

    jobId: str
    userName: str
    vcName: str
    jobParams: dict[str, Any]
    number: int
    submitted_s: float
    jobStatus: str = "unapproved"
    errorMsg: str = ""
    is_begun: bool = False
    forced: str = ""
    started_s: float | None = None
    ended_s: float | None = None

    @property
    def status(self) -> str:
        return self.forced or self.jobStatus


class Cluster:
    """`folder`: persistent state. `hold`: jobs wait until started. `pretended_s`: simulated jobs without pods."""

    def __init__(self, folder: Path, now: Callable[[], float]) -> None:
        self._folder, self._now = folder, now
        self.hold, self.pretended_s = False, 0.0
        self.mounts: list[Mount] = []
        files = sorted((folder / "jobs").glob("*.json"))
        found = sorted((Job(**json.loads(file.read_text())) for file in files), key=lambda job: job.number)
        self.jobs = {job.jobId: job for job in found}

    @property
    def is_busy(self) -> bool:
        return any(job.jobStatus in ACTIVE for job in self.jobs.values())

    def add(self, told: dict[str, Any]) -> str:
        """Submit a job and return the error, if any. All failures of the database have the same error."""
        if not str(told.get("jobName", "")).strip():
            return "ERROR: Job name cannot be empty"
        if not str(told.get("vcName", "")).strip():
            return "ERROR: VC name cannot be empty"
        told = {"jobId": "", "cmd": "", "resourcegpu": 0, **told}
        told["preemptionAllowed"] = str(told.get("preemptionAllowed", False)).lower() == "true"
        id = told["jobId"] = told["jobId"] or told["familyToken"]
        if len(id) > _MOST or id in self.jobs or "jobType" not in told:
            return "Cannot schedule job. Cannot add job into database."
        if error := _wrong_path(told):
            return error
        user = pod.alias(told["userName"])
        day = time.strftime("%y%m%d", time.gmtime(self._now()))
        told["jobPath"] = f"{user}/{told['jobPath']}" if told.get("jobPath") else f"{user}/jobs/{day}/{id}"
        self.jobs[id] = Job(id, told["userName"], told["vcName"], told, len(self.jobs), self._now())
        self._save(self.jobs[id])
        return ""

    def kill(self, job: Job) -> bool:
        """Start killing a job; returns whether that was possible."""
        can = job.status in KILLABLE
        if can:
            job.jobStatus, job.forced = "killing", ""
            self._save(job)
        return can

    def destroy(self, job: Job) -> None:
        sandbox.destroy(self._container(job))

    def remove(self, job: Job) -> None:
        """Remove a job from the database."""
        self.destroy(job)
        del self.jobs[job.jobId]
        self._file(job).unlink()

    def advance(self) -> None:
        for job in self.jobs.values():
            before = job.jobStatus
            if not job.forced:
                self._advance(job)
            if job.jobStatus != before:
                self._save(job)

    def _advance(self, job: Job) -> None:
        match job.jobStatus:
            case "unapproved":
                job.jobStatus = "queued"
            case "queued" if job.is_begun or not self.hold:
                job.jobStatus, job.is_begun = "scheduling", True
            case "scheduling":
                self._start(job)
            case "running":
                self._watch(job)
            case "killing":  # no grace period: processes in the pod get no signal
                self.destroy(job)
                self._end(job, "killed")

    def _start(self, job: Job) -> None:
        job.jobStatus, job.started_s = "running", self._now()
        if self.pretended_s:
            return
        params = job.jobParams
        if not params.get("jobtrainingtype"):
            self._end(job, "error", "Missing required parameters!")
            return
        try:
            pod.start(self._container(job), self._folder / "nfs", params, self.mounts)
        except ValueError as error:
            self._end(job, "error", str(error))

    def _watch(self, job: Job) -> None:
        """Record the end of a job; no answer contains the exit code."""
        if self.pretended_s:
            if self._now() - (job.started_s or 0) >= self.pretended_s:
                self._end(job, "finished")
            return
        code = sandbox.exit_code(self._container(job))
        if code is not None:
            self._end(job, *(("finished", "") if code == 0 else ("failed", "pod failed")))

    def _end(self, job: Job, status: str, message: str = "") -> None:
        job.jobStatus, job.errorMsg, job.ended_s = status, message, self._now()

    def _container(self, job: Job) -> Path:
        return self._folder / "pods" / job.jobId

    def _file(self, job: Job) -> Path:
        return self._folder / "jobs" / f"{job.jobId}.json"

    def _save(self, job: Job) -> None:
        file = self._file(job)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".new").write_text(json.dumps(asdict(job)))
        file.with_suffix(".new").replace(file)

    def clear(self) -> None:
        """Destroy a job's pod."""
        for job in self.jobs.values():
            self.destroy(job)
        shutil.rmtree(self._folder, ignore_errors=True)


def _wrong_path(told: dict[str, Any]) -> str:
    for field, word in {"jobPath": "job", "workPath": "work", "dataPath": "data"}.items():
        path = str(told.get(field) or "")
        if ".." in path:
            return f"ERROR: '..' cannot be used in {word} directory"
        if path.startswith(("/", "\\")):
            return f"ERROR: {word} directory should not start with '/' or '\\' "
    return ""
