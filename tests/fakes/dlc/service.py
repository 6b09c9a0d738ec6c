"""The service itself, without its HTTP: requests in, answers out, and time that passes."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from tests.fakes import contracts
from tests.fakes.dlc import life, listing
from tests.fakes.dlc.answers import Answer, Refused, request_id
from tests.fakes.dlc.containers import Containers
from tests.fakes.dlc.faults import Faults
from tests.fakes.dlc.jobs import Job, Jobs
from tests.fakes.dlc.requests import INSTANCE_TYPES, SCHEMA, check_creation
from tests.fakes.dlc.signature import Signatures

Body = Mapping[str, Any]
_ROUTES = (
    ("POST", r"/api/v1/jobs", "CreateJob"), ("GET", r"/api/v1/jobs", "ListJobs"),
    ("GET", r"/api/v1/jobs/([^/]+)", "GetJob"), ("POST", r"/api/v1/jobs/([^/]+)/stop", "StopJob"),
    ("DELETE", r"/api/v1/jobs/([^/]+)", "DeleteJob"), ("GET", r"/api/v1/ecsspecs", "ListEcsSpecs"),
    ("GET", r"/api/v1/jobs/([^/]+)/pods/([^/]+)/logs", "GetPodLogs"),
)  # fmt: skip


class Lost(Exception):
    """The request was carried out, and its answer does not arrive."""


class DlcService:
    """`folder`: everything it remembers. `now_s`: seconds since the epoch."""

    def __init__(
        self, folder: Path, containers: Containers, *, keys: Mapping[str, str],
        workspaces: tuple[str, ...] = ("12345",), quotas: tuple[str, ...] = ("rgexample",),
        now_s: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.faults = Faults()
        self.signatures = Signatures(keys)
        self.jobs = Jobs(folder / "jobs")
        self.containers = containers
        #: (when, action) of every request, refused ones included.
        self.calls: list[tuple[float, str]] = []
        self._workspaces, self._quotas, self._now_s = workspaces, quotas, now_s
        self._recent: deque[float] = deque()
        self._lock = threading.RLock()

    def handle(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Raises Lost."""
        with self._lock:
            try:
                return self._handle(method, path, query, headers, body)
            except Refused as refused:
                return refused.answer(headers.get("host", ""))

    def advance(self) -> None:
        """Whatever time has brought."""
        with self._lock:
            for job in self.jobs.unfinished():
                if life.advance(job, self.faults, self.containers, self._now_s()):
                    self.jobs.put(job)

    # What tests do

    def release(self, id: str) -> None:
        with self._lock:
            self.jobs.by_id[id].is_held = False
            self.advance()

    def vanish(self, id: str) -> None:
        """Every trace of it."""
        with self._lock:
            job = self.jobs.by_id[id]
            self.containers.destroy(id, job.containers or 0)
            self.jobs.remove(id)

    def stop(self, id: str) -> None:
        """A person does, in the console."""
        with self._lock:
            self._stop(self.jobs.by_id[id])

    def kill_all(self) -> None:
        with self._lock:
            for job in self.jobs.unfinished():
                self.containers.destroy(job.id, job.containers or 0)

    # Requests

    def _handle(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer:
        action, ids = _route(method, path)
        now_s = self._now_s()
        self.calls.append((now_s, action))
        self._control_flow(now_s)
        owner = self.signatures.check(method, path, query, headers, body, now_s=now_s)
        if headers.get("x-acs-action") != action or headers.get("x-acs-version") != "2020-12-03":
            raise Refused(
                400, "InvalidAction.NotFound", "Specified api is not found, please check your url and method."
            )
        self.advance()
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        answer = getattr(self, f"_on_{action}")(owner, ids, parameters, body)
        fault = contracts.fault(SCHEMA, f"{action}ResponseBody", answer)
        assert not fault, fault
        if action == "CreateJob" and self.faults.lost_creations > 0:
            self.faults.lost_creations -= 1
            raise Lost
        return Answer(status=200, body=answer)

    def _control_flow(self, now_s: float) -> None:
        while self._recent and self._recent[0] <= now_s - 1:
            self._recent.popleft()
        self._recent.append(now_s)
        is_over = 0 < self.faults.calls_a_second < len(self._recent)
        if self.faults.throttled > 0 or is_over:
            self.faults.throttled = max(0, self.faults.throttled - 1)
            wait_ms = self.faults.retry_after_ms
            headers = {"x-acs-retry-after": str(wait_ms)} if wait_ms else {}
            raise Refused(429, "Throttling.User", "Request was denied due to user flow control.", headers)

    def _on_CreateJob(self, owner: str, _ids: tuple[str, ...], _query: Mapping[str, str], body: bytes) -> Body:
        request = json.loads(body)
        check_creation(
            request, sources=self.containers.sources, quotas=self._quotas, workspaces=self._workspaces
        )  # fmt: skip
        now_s = self._now_s()
        job = Job(id=f"dlc{request_id()[:13].lower().replace('-', '')}", request=request, owner=owner, created_s=now_s)
        job.is_held = self.faults.hold
        job.note(now_s, "Creating")
        self.jobs.put(job)
        self.advance()
        return {"JobId": job.id, "RequestId": request_id()}

    def _on_ListJobs(self, _owner: str, _ids: tuple[str, ...], query: Mapping[str, str], _body: bytes) -> Body:
        if query.get("WorkspaceId", self._workspaces[0]) not in self._workspaces:
            raise Refused(403, "Forbidden.Workspace", f"You have no permission for workspace {query['WorkspaceId']}.")
        seen_s = self._now_s() - self.faults.list_lag_s
        jobs = self.jobs.by_id.values()
        shown, total = listing.page(jobs, query, seen_s=seen_s, limit=self.faults.page_limit)
        return {"Jobs": [self._shown(job, seen_s) for job in shown], "TotalCount": total, "RequestId": request_id()}

    def _on_GetJob(self, _owner: str, ids: tuple[str, ...], _query: Mapping[str, str], _body: bytes) -> Body:
        return {**self._shown(self._find(ids[0]), self._now_s()), "RequestId": request_id()}

    def _on_StopJob(self, _owner: str, ids: tuple[str, ...], _query: Mapping[str, str], _body: bytes) -> Body:
        job = self._find(ids[0])
        if job.status in life.ENDED:
            raise Refused(400, "InvalidJobStatus", f"Job {job.id} is {job.status} and cannot be stopped.")
        self._stop(job)
        return {"JobId": job.id, "RequestId": request_id()}

    def _on_DeleteJob(self, _owner: str, ids: tuple[str, ...], _query: Mapping[str, str], _body: bytes) -> Body:
        job = self._find(ids[0])
        if job.status not in life.ENDED:
            raise Refused(400, "InvalidJobStatus", f"Job {job.id} is {job.status} and cannot be deleted.")
        self.jobs.remove(job.id)
        return {"JobId": job.id, "RequestId": request_id()}

    def _on_GetPodLogs(self, _owner: str, ids: tuple[str, ...], query: Mapping[str, str], _body: bytes) -> Body:
        job = self._find(ids[0])
        lines = self.containers.log(job.id, int(ids[1].rpartition("-")[2])).splitlines()
        return {
            "JobId": job.id, "PodId": ids[1], "Logs": lines[-int(query.get("MaxLines", 2000)) :],
            "RequestId": request_id(),
        }  # fmt: skip

    def _on_ListEcsSpecs(self, _owner: str, _ids: tuple[str, ...], query: Mapping[str, str], _body: bytes) -> Body:
        wanted = query.get("InstanceTypes", ",".join(INSTANCE_TYPES)).split(",")
        specs = [{"InstanceType": n, "IsAvailable": True, **s} for n, s in INSTANCE_TYPES.items() if n in wanted]
        return {"EcsSpecs": specs, "TotalCount": len(specs), "RequestId": request_id()}

    def _stop(self, job: Job) -> None:
        if job.status in life.ENDED or job.stopped_s is not None:
            return
        job.stopped_s = self._now_s()
        if job.containers:
            job.note(job.stopped_s, "Stopping")
            self.containers.terminate(job.id, job.containers)
        self.jobs.put(job)
        self.advance()

    def _find(self, id: str) -> Job:
        if id not in self.jobs.by_id:
            raise Refused(404, "JobNotFound", f"Job {id} does not exist.")
        return self.jobs.by_id[id]

    def _shown(self, job: Job, seen_s: float) -> dict[str, Any]:
        request, status = job.request, job.status_at(seen_s)
        shown = {
            "JobId": job.id, "DisplayName": job.name, "Status": self.faults.statuses.get(job.id, status),
            "JobType": request["JobType"], "JobSpecs": request["JobSpecs"], "UserCommand": request["UserCommand"],
            "Settings": request.get("Settings", {}), "Envs": request.get("Envs", {}), "UserId": job.owner,
            "WorkspaceId": request.get("WorkspaceId", ""), "GmtCreateTime": _time(job.created_s),
            "ReasonCode": f"Job{status}", "ReasonMessage": self.faults.reasons.get(job.id, f"The job is {status}."),
        }  # fmt: skip
        moments = {
            "GmtRunningTime": job.since("Running"), "GmtFinishTime": job.since(*life.ENDED),
            "GmtSuccessedTime": job.since("Succeeded"), "GmtFailedTime": job.since("Failed"),
            "GmtStoppedTime": job.since("Stopped"),
        }  # fmt: skip
        return shown | {name: _time(at_s) for name, at_s in moments.items() if at_s is not None and at_s <= seen_s}


def _route(method: str, path: str) -> tuple[str, tuple[str, ...]]:
    for verb, pattern, action in _ROUTES:
        found = re.fullmatch(pattern, path)
        if verb == method and found is not None:
            return action, found.groups()
    raise Refused(404, "InvalidAction.NotFound", f"There is no {method} {path}.")


def _time(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
