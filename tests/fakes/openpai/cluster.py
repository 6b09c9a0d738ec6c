"""Life cycle of jobs: attempts, tasks, stops and restarts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes import sandbox
from tests.fakes.openpai import exits, runtime
from tests.fakes.openpai.own_mounts import Image, Network
from tests.fakes.openpai.runtime import Place, Storage

#: Native states of an attempt, in their order.
REQUESTED, PREPARING, RUNNING, DELETING, COMPLETED = (
    "AttemptCreationPending",
    "AttemptPreparing",
    "AttemptRunning",
    "AttemptDeletionRequested",
    "Completed",
)


@dataclass(slots=True)
class Task:
    """`code`: the cluster's exit code, None until its container has ended. `said`: message of the runtime."""

    role: str
    index: int
    code: int | None = None
    said: dict[str, Any] | None = None


@dataclass(slots=True)
class Job:
    """`sub_state`: native. `code`: of the last attempt, set as soon as it is decided. Times in ms since the epoch."""

    user: str
    config: dict[str, Any]
    text: str
    submitted_ms: int
    sub_state: str = REQUESTED
    attempt: int = 0
    platform_retries: int = 0
    user_retries: int = 0
    launched_ms: int | None = None
    completed_ms: int | None = None
    code: int | None = None
    said: dict[str, Any] | None = None
    #: Time at which remaining tasks are killed.
    kill_ms: int | None = None
    is_begun: bool = False
    #: State set by a test.
    forced_state: str = ""
    forced_sub_state: str = ""
    tasks: list[Task] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.config["name"])

    @property
    def progress(self) -> object:
        """A value that changes with each change of the job."""
        return self.sub_state, self.code, self.attempt, [task.code for task in self.tasks]

    @property
    def framework(self) -> str:
        """Its name in the cluster."""
        return hashlib.md5(f"{self.user}~{self.name}".encode()).hexdigest()

    @property
    def state(self) -> str:
        return self.forced_state or shown_state(self.shown_sub_state, self.code)

    @property
    def shown_sub_state(self) -> str:
        return self.forced_sub_state or self.sub_state


def shown_state(sub_state: str, code: int | None) -> str:
    is_stop = code in (exits.STOPPED, exits.COMPLETED)
    if sub_state in (REQUESTED, "AttemptCreationRequested", PREPARING):
        return "WAITING"
    if sub_state == COMPLETED:
        return "SUCCEEDED" if code == 0 else "STOPPED" if is_stop else "FAILED"
    if sub_state.startswith("Attempt"):
        return "STOPPING" if is_stop and sub_state != RUNNING else "RUNNING"
    return "UNKNOWN"


class Cluster:
    """`folder`: persistent state. `hold`: jobs wait until started. `pretended_s`: simulated jobs without containers.

    `image_packages`, `may_mount`, `may_install`: of `Image`, for containers that start from now on. `mount_fault`: of
    `Network`.
    """

    def __init__(self, folder: Path, now: Callable[[], float]) -> None:
        self._folder, self._now = folder, now
        self.hold, self.pretended_s, self.grace_s = False, 0.0, 30.0
        self.storages: dict[str, Storage] = {}
        self.image_packages, self.may_mount, self.may_install = list(Image().packages), True, True
        self.network, self._mount_fault = Network(folder / "network"), ""
        self.jobs: dict[tuple[str, str], Job] = {}
        for file in sorted((folder / "jobs").glob("*.json")):
            told = json.loads(file.read_text())
            job = Job(**{**told, "tasks": [Task(**one) for one in told["tasks"]]})
            self.jobs[job.user, job.name] = job

    @property
    def now_ms(self) -> int:
        return int(self._now() * 1000)

    @property
    def is_busy(self) -> bool:
        return any(job.sub_state != COMPLETED for job in self.jobs.values())

    @property
    def mount_fault(self) -> str:
        return self._mount_fault

    @mount_fault.setter
    def mount_fault(self, fault: str) -> None:
        self._mount_fault = fault
        self.network.tell(fault)

    def add(self, user: str, config: dict[str, Any], text: str) -> Job:
        job = self.jobs[user, config["name"]] = Job(user, config, text, self.now_ms // 1000 * 1000)
        self._save(job)
        return job

    def stop(self, job: Job) -> None:
        """Stop a job, like a user's request; ended jobs are unchanged."""
        if job.code is None:
            self._complete(job, exits.STOPPED, None)
            self._save(job)

    def end(self, job: Job, code: int) -> None:
        """Lose a job's node, like a fault of the cluster."""
        self.destroy(job)
        for task in job.tasks:
            task.code = code
        self._complete(job, code, None)
        self._save(job)

    def destroy(self, job: Job) -> None:
        for task in job.tasks:
            sandbox.destroy(self._container(job, task))

    def remove(self, job: Job) -> None:
        """Remove a job from the cluster."""
        self.destroy(job)
        del self.jobs[job.user, job.name]
        self._file(job).unlink()

    def advance(self) -> None:
        for job in self.jobs.values():
            before = job.progress
            if job.sub_state != COMPLETED:
                self._advance(job)
            if job.progress != before:
                self._save(job)

    def _advance(self, job: Job) -> None:
        if job.sub_state == REQUESTED:
            job.sub_state = PREPARING
        elif job.sub_state == PREPARING and (job.is_begun or not self.hold):
            self._launch(job)
        elif job.sub_state == RUNNING:
            self._watch(job)
        elif job.sub_state == DELETING:
            self._delete(job)

    def _launch(self, job: Job) -> None:
        job.sub_state, job.launched_ms, job.is_begun = RUNNING, self.now_ms, True
        roles = job.config["taskRoles"]
        job.tasks = [Task(role, index) for role in roles for index in range(roles[role].get("instances", 1))]
        if not self.pretended_s:
            self.network.tell(self.mount_fault)
            image = Image(tuple(self.image_packages), self.may_mount, self.may_install)
            place = Place(self.storages, self.network, image, self._folder.with_name(f"{self._folder.name}-sbin"))
            for task in job.tasks:
                runtime.start(self._container(job, task), job.user, job.config, task.role, task.index, place)

    def _watch(self, job: Job) -> None:
        if self.pretended_s:
            if self.now_ms >= (job.launched_ms or 0) + self.pretended_s * 1000:
                self._complete(job, 0, None)
            return
        self._look(job)
        decided = next((task for role in job.config["taskRoles"] for task in self._deciding(job, role)), None)
        if decided is not None:
            self._complete(job, decided.code or 0, decided.said)
        elif all(task.code is not None for task in job.tasks):
            self._complete(job, 0, None)

    def _look(self, job: Job) -> None:
        for task in job.tasks:
            if task.code is None and (end := runtime.ended(self._container(job, task))):
                task.code, task.said = end

    def _deciding(self, job: Job, role: str) -> list[Task]:
        """The task that fulfils its role's completion policy. Failures come first."""
        tasks = [task for task in job.tasks if task.role == role]
        wanted = job.config["taskRoles"][role].get("completion") or {}
        failed = [task for task in tasks if task.code]
        succeeded = [task for task in tasks if task.code == 0]
        most_failed, enough = wanted.get("minFailedInstances") or 1, wanted.get("minSucceededInstances") or len(tasks)
        if 0 < most_failed <= len(failed):
            return failed[-1:]
        return succeeded[-1:] if 0 < enough <= len(succeeded) else []

    def _complete(self, job: Job, code: int, said: dict[str, Any] | None) -> None:
        """Decide the attempt's end; remaining tasks get SIGTERM and their grace period."""
        job.code, job.said, job.sub_state = code, said, DELETING
        job.kill_ms = self.now_ms + int(self.grace_s * 1000)
        for task in job.tasks:
            sandbox.terminate(self._container(job, task))
        self._delete(job)

    def _delete(self, job: Job) -> None:
        if self.now_ms >= (job.kill_ms or 0):
            for task in job.tasks:
                sandbox.kill(self._container(job, task))
        if not any(self._runs(job, task) for task in job.tasks):
            self._conclude(job)

    def _runs(self, job: Job, task: Task) -> bool:
        folder = self._container(job, task)
        return task.code is None and folder.exists() and sandbox.exit_code(folder) is None

    def _conclude(self, job: Job) -> None:
        code, reaction = job.code or 0, exits.spec_of(job.code or 0).reaction
        if reaction == exits.ALWAYS:
            job.platform_retries += 1
        elif reaction == exits.TO_MAX and job.user_retries < job.config.get("jobRetryCount", 0):
            job.user_retries += 1
        else:
            job.sub_state, job.code, job.completed_ms = COMPLETED, code, self.now_ms
            return
        job.sub_state, job.code, job.said, job.tasks = REQUESTED, None, None, []
        job.attempt += 1

    def _container(self, job: Job, task: Task) -> Path:
        return self._folder / "containers" / job.framework / f"{job.attempt}-{task.role}-{task.index}"

    def _file(self, job: Job) -> Path:
        return self._folder / "jobs" / f"{job.framework}.json"

    def _save(self, job: Job) -> None:
        file = self._file(job)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".new").write_text(json.dumps(asdict(job)))
        file.with_suffix(".new").replace(file)
