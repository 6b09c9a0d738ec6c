"""The cluster behind the rest-server: jobs, their containers, and what is known of them after a restart."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes import containers
from tests.fakes.openpai import protocol

#: What the cluster's own exit codes mean, as far as they are acted out: phrase and type.
EXITS = {
    -210: ("StopFrameworkRequested", "USER_STOP"),
    -101: ("PodExternalDeleted", "PLATFORM_FAILURE"),
    -1000: ("PodEvicted", "PLATFORM_FAILURE"),
    -1001: ("PodNodeLost", "PLATFORM_FAILURE"),
    -1003: ("PodPreemptedForCriticalPod", "PLATFORM_FAILURE"),
    -1200: ("UserContainerDockerOOMKilled", "USER_FAILURE"),
    220: ("UserCommandExitWithError", "USER_FAILURE"),
}
#: Exit codes of containers that the cluster takes for its own trouble: the job starts again, however often it has.
ALWAYS_RETRIED = frozenset({130, 131, 137, 143, 223, 250, 253})
_STOPPED = -210


@dataclass
class Job:
    user: str
    name: str
    config: str
    virtual_cluster: str
    submitted_ms: int
    #: Role → entry point and number of tasks.
    roles: dict[str, list[Any]]
    #: Role → tasks of it that make the job succeed; below 1: all of all roles do.
    succeeds_with: dict[str, int]
    #: Where each storage that the job mounts is seen: source and target.
    mounts: list[list[str]]
    is_begun: bool = False
    is_stopping: bool = False
    stop_at_s: float = 0.0
    retries: int = 0
    started_ms: int | None = None
    completed_ms: int | None = None
    exit_code: int | None = None
    #: Said of it instead of its state.
    odd_state: str = ""
    #: Its sub-state while it waits.
    waits_as: str = ""
    #: Containers of all attempts so far: role, index, folder.
    containers: list[list[Any]] = field(default_factory=list)

    @property
    def sub_state(self) -> str:
        if self.completed_ms is not None:
            return "Completed"
        if self.is_stopping:
            return "AttemptDeletionRequested"
        return "AttemptRunning" if self.started_ms is not None else self.waits_as or "AttemptPreparing"

    @property
    def state(self) -> str:
        """From sub-state and exit code, by the server's table."""
        if self.odd_state:
            return self.odd_state
        if self.sub_state == "Completed":
            return {0: "SUCCEEDED", _STOPPED: "STOPPED"}.get(self.exit_code or 0, "FAILED")
        if self.is_stopping:
            return "STOPPING"
        return "RUNNING" if self.started_ms is not None else "WAITING"


@dataclass
class Behaviour:
    """How the cluster is; changed by ``POST /fake/behaviour``."""

    #: Jobs wait until ``/fake/begin``.
    hold: bool = False
    #: Jobs that run at a time; None: all.
    capacity: int | None = None
    #: Seconds that a stopped job has.
    stop_grace_s: float = 1.0
    #: Jobs run so long by the clock, and have no containers. None: they are real.
    pretended_s: float | None = None
    namespaces: bool = False


class Cluster:
    """`folder`: everything that outlives this process. `clock`: seconds since the epoch."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self.folder = folder
        self.clock = clock
        self.behaviour = Behaviour()
        self.jobs: dict[tuple[str, str], Job] = {}
        for path in sorted((folder / "jobs").glob("*/job.json")):
            job = Job(**json.loads(path.read_text()))
            self.jobs[job.user, job.name] = job

    def add(self, job: Job) -> None:
        self.jobs[job.user, job.name] = job
        self._save(job)
        self.advance()

    def remove(self, user: str, name: str) -> None:
        """Every trace of it."""
        job = self.jobs.pop((user, name))
        self._destroy(job)
        shutil.rmtree(self._folder(job))

    def stop(self, job: Job) -> None:
        self.advance()
        if job.completed_ms is None and not job.is_stopping:
            job.is_stopping, job.stop_at_s = True, self.clock() + self.behaviour.stop_grace_s
            for _, _, folder in self._current(job):
                containers.terminate(Path(folder))
            self._save(job)
            self.advance()

    def end(self, job: Job, code: int) -> None:
        """The cluster does it."""
        self._complete(job, code)

    def retry(self, job: Job) -> None:
        """As after trouble of the cluster's own: another attempt, with the next containers."""
        self._destroy(job)
        job.retries += 1
        job.started_ms = None
        self._save(job)
        self.advance()

    def advance(self) -> None:
        """What has happened since."""
        for job in list(self.jobs.values()):
            if job.completed_ms is None:
                self._advance(job)

    def destroy(self) -> None:
        for job in self.jobs.values():
            self._destroy(job)

    @property
    def is_busy(self) -> bool:
        return any(job.completed_ms is None for job in self.jobs.values())

    def _advance(self, job: Job) -> None:
        if job.started_ms is None:
            if job.is_stopping:
                self._complete(job, _STOPPED)
            elif (job.is_begun or not self.behaviour.hold) and self._has_room():
                self._start(job)
            return
        code = self._verdict(job)
        if job.is_stopping and (code is not None or self.clock() >= job.stop_at_s):
            self._complete(job, _STOPPED)
        elif code in ALWAYS_RETRIED:
            self.retry(job)
        elif code is not None:
            self._complete(job, code)

    def _has_room(self) -> bool:
        most = self.behaviour.capacity
        running = sum(one.started_ms is not None and one.completed_ms is None for one in self.jobs.values())
        return most is None or running < most

    def _start(self, job: Job) -> None:
        job.started_ms = round(self.clock() * 1000)
        if self.behaviour.pretended_s is None:
            for role, (entrypoint, count, *_) in job.roles.items():
                for index in range(count):
                    self._start_task(job, role, entrypoint, index)
        self._save(job)

    def _start_task(self, job: Job, role: str, entrypoint: str, index: int) -> None:
        folder = self._folder(job) / f"{job.retries}-{role}-{index}"
        environment = {
            "PAI_JOB_NAME": f"{job.user}~{job.name}", "PAI_USER_NAME": job.user, "PAI_CURRENT_TASK_ROLE_NAME": role,
            "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(index), "PAI_TASK_INDEX": str(index),
        }  # fmt: skip
        mounts = [containers.Mount(Path(source), Path(target)) for source, target in job.mounts]
        job.containers.append([role, index, str(folder)])
        containers.start(folder, entrypoint, environment, mounts, namespaces=self.behaviour.namespaces)

    def _current(self, job: Job) -> Iterator[list[Any]]:
        prefix = str(self._folder(job) / f"{job.retries}-")
        return (one for one in job.containers if one[2].startswith(prefix))

    def _verdict(self, job: Job) -> int | None:
        """The job's exit code, by its completion policy; None: it goes on."""
        if self.behaviour.pretended_s is not None:
            return 0 if self.clock() * 1000 >= (job.started_ms or 0) + self.behaviour.pretended_s * 1000 else None
        codes = [(role, containers.exit_code(Path(folder))) for role, _, folder in self._current(job)]
        failed = [code for _, code in codes if code]
        if failed:
            return failed[0]
        if all(code == 0 for _, code in codes):
            return 0
        done = (
            sum(its == role and code == 0 for its, code in codes) >= most > 0
            for role, most in job.succeeds_with.items()
        )
        return 0 if any(done) else None

    def _complete(self, job: Job, code: int) -> None:
        self._destroy(job)
        job.exit_code, job.completed_ms = code, round(self.clock() * 1000)
        if code == 0 and self.behaviour.pretended_s is not None:  # nobody may have looked since
            job.completed_ms = (job.started_ms or 0) + round(self.behaviour.pretended_s * 1000)
        self._save(job)

    def _destroy(self, job: Job) -> None:
        for _, _, folder in self._current(job):
            containers.destroy(Path(folder))

    def _folder(self, job: Job) -> Path:
        return self.folder / "jobs" / f"{job.user}~{job.name}"

    def _save(self, job: Job) -> None:
        path = self._folder(job) / "job.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(job)))
        os.replace(draft, path)


def job_of(user: str, config: dict[str, Any], mounts: list[list[str]], now_ms: int) -> Job:
    """As it was submitted."""
    roles = {}
    succeeds_with = {}
    for name, role in config["taskRoles"].items():
        count = int(role.get("instances", 1))
        resources = role["resourcePerInstance"]
        roles[name] = [protocol.entrypoint(config, name), count, resources["gpu"]]
        succeeds_with[name] = (role.get("completion") or {}).get("minSucceededInstances") or count
    return Job(
        user=user, name=config["name"], config=protocol.masked(config),
        virtual_cluster=(config.get("defaults") or {}).get("virtualCluster") or "default", submitted_ms=now_ms,
        roles=roles, succeeds_with=succeeds_with, mounts=mounts,
    )  # fmt: skip
