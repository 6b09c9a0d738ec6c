"""The service behind the port: signed calls within the account's limits, and running jobs."""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from tests.fakes.dlc import life, listing, shown
from tests.fakes.dlc.answers import Answer, Refused, request_id
from tests.fakes.dlc.containers import Containers
from tests.fakes.dlc.faults import Faults
from tests.fakes.dlc.jobs import ENDED, Job, Jobs
from tests.fakes.dlc.requests import INSTANCE_TYPES, check_creation
from tests.fakes.dlc.signature import Signatures

_HOST = "pai-dlc.fake.example.test"
_ROUTES = (
    ("POST", r"/api/v1/jobs", "CreateJob"),
    ("GET", r"/api/v1/jobs", "ListJobs"),
    ("GET", r"/api/v1/jobs/([^/]+)", "GetJob"),
    ("POST", r"/api/v1/jobs/([^/]+)/stop", "StopJob"),
    ("DELETE", r"/api/v1/jobs/([^/]+)", "DeleteJob"),
    ("GET", r"/api/v1/ecsspecs", "ListEcsSpecs"),
    ("GET", r"/api/v1/jobs/([^/]+)/pods/([^/]+)/logs", "GetPodLogs"),
)
Body = dict[str, Any]


class Lost(Exception):
    """The request was carried out, but its answer is lost."""


class DlcService:
    """`folder`: persistent state. `keys`: id → secret. `now_s`: seconds since the epoch."""

    def __init__(
        self,
        folder: Path,
        containers: Containers,
        *,
        keys: Mapping[str, str],
        workspaces: tuple[str, ...] = ("12345",),
        quotas: tuple[str, ...] = ("rgexample",),
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.faults, self.signatures = Faults(), Signatures(keys)
        self.jobs, self.containers = Jobs(folder / "jobs"), containers
        #: (time, action) of every request, including refused ones.
        self.calls: list[tuple[float, str]] = []
        self._workspaces, self._quotas, self._now_s = workspaces, quotas, now_s
        self._recent: deque[float] = deque()
        self._lock = threading.RLock()

    # Calls

    def handle(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Answer a request. `headers`: names in lower case. Raises Lost."""
        with self._lock:
            self.advance()
            try:
                if self.faults.doubled_creations and _route(method, path)[0] == "CreateJob":
                    self.faults.doubled_creations -= 1
                    self._answer(method, path, query, headers, body)
                return self._answer(method, path, query, headers, body)
            except Refused as refused:
                return refused.answer(_HOST)

    def _answer(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer:
        action, ids = _route(method, path)
        now_s = self._now_s()
        self.calls.append((now_s, action))
        owner = self.signatures.check(method, path, query, headers, body, now_s=now_s + self.faults.ahead_s)
        if headers.get("x-acs-action") != action or headers.get("x-acs-version") != "2020-12-03":
            raise Refused(404, "InvalidAction.NotFound", "Specified api is not found.")
        self._control_flow(now_s)
        told = getattr(self, f"_on_{action}")(owner, ids, dict(parse_qsl(query, keep_blank_values=True)), body)
        return Answer(status=200, body={**told, "RequestId": request_id()})

    def _control_flow(self, now_s: float) -> None:
        while self._recent and self._recent[0] <= now_s - 1:
            self._recent.popleft()
        self._recent.append(now_s)
        is_beyond = bool(self.faults.calls_a_second) and len(self._recent) > self.faults.calls_a_second
        if not is_beyond and not self.faults.throttled:
            return
        self.faults.throttled = max(0, self.faults.throttled - 1)
        wait_ms = self.faults.retry_after_ms
        headers = {"x-acs-retry-after": str(wait_ms)} if wait_ms else {}
        raise Refused(429, "Throttling.User", "Request was denied due to user flow control.", headers)

    def _on_CreateJob(self, owner: str, _ids: tuple[str, ...], _query: Mapping[str, str], body: bytes) -> Body:
        if self.faults.creations:
            raise Refused(*self.faults.creations.pop(0), "The request cannot be carried out now.")
        request = json.loads(body or b"null")
        check_creation(request, sources=self.containers.sources, quotas=self._quotas, workspaces=self._workspaces)
        now_s = self._now_s()
        job = Job(id=f"dlc{uuid.uuid4().hex[:16]}", request=request, owner=owner, created_s=now_s)
        job.is_held = self.faults.hold
        job.note(now_s, "Creating")
        if self.faults.pretend_s is not None:
            life.advance(job, self.faults, self.containers, now_s)
        self.jobs.put(job)
        if self.faults.lost_creations:
            self.faults.lost_creations -= 1
            raise Lost
        return {"JobId": job.id}

    def _on_ListJobs(self, owner: str, _ids: tuple[str, ...], query: Mapping[str, str], _body: bytes) -> Body:
        if query.get("WorkspaceId", self._workspaces[0]) not in self._workspaces:
            raise Refused(403, "Forbidden.Workspace", f"You have no permission for workspace {query['WorkspaceId']}.")
        seen_s = self._now_s() - self.faults.list_lag_s
        jobs = self.jobs.by_id.values()
        found, total = listing.page(jobs, query, owner=owner, seen_s=seen_s, limit=self.faults.page_limit)
        return {"Jobs": [shown.item(job, self.faults, seen_s) for job in found], "TotalCount": total}

    def _on_GetJob(self, _owner: str, ids: tuple[str, ...], query: Mapping[str, str], _body: bytes) -> Body:
        is_whole = query.get("NeedDetail", "true") != "false"
        return shown.detail(self._find(ids[0]), self.faults, self._now_s(), is_whole=is_whole)

    def _on_StopJob(self, _owner: str, ids: tuple[str, ...], _query: Mapping[str, str], _body: bytes) -> Body:
        job = self._find(ids[0])
        if job.status in ENDED:
            raise Refused(400, "InvalidJobStatus", f"The job {job.id} is {job.status}.")
        self.stop(job.id)
        return {"JobId": job.id}

    def _on_DeleteJob(self, _owner: str, ids: tuple[str, ...], _query: Mapping[str, str], _body: bytes) -> Body:
        job = self._find(ids[0])
        if job.status not in ENDED:
            raise Refused(400, "InvalidJobStatus", f"The job {job.id} is {job.status}.")
        self.jobs.remove(job.id)
        return {"JobId": job.id}

    def _on_GetPodLogs(self, _owner: str, ids: tuple[str, ...], query: Mapping[str, str], _body: bytes) -> Body:
        job = self._find(ids[0])
        numbers = [number for number, pod in enumerate(shown.pods(job)) if pod["PodId"] == ids[1]]
        if not numbers:
            raise Refused(*self.faults.missing, f"{ids[1]} was not found.")
        lines = self.containers.log(job.run_id, numbers[0]).splitlines()
        return {"JobId": job.id, "PodId": ids[1], "Logs": lines[-int(query.get("MaxLines", 2000)) :]}

    def _on_ListEcsSpecs(self, _owner: str, _ids: tuple[str, ...], query: Mapping[str, str], _body: bytes) -> Body:
        names = sorted(INSTANCE_TYPES)
        wanted = query["InstanceTypes"].split(",") if query.get("InstanceTypes") else names
        size, number = int(query.get("PageSize", 10)), int(query.get("PageNumber", 1))
        found = [{"InstanceType": name, **INSTANCE_TYPES[name]} for name in names if name in wanted]
        return {"EcsSpecs": found[(number - 1) * size : number * size], "TotalCount": len(found)}

    def _find(self, id: str) -> Job:
        if refusal := self.faults.refusals.get(id):
            raise Refused(*refusal, f"The call about {id} is refused.")
        if id not in self.jobs.by_id:
            raise Refused(*self.faults.missing, f"{id} does not exist.")
        return self.jobs.by_id[id]

    # Time

    def advance(self) -> None:
        """Advance all jobs by a step."""
        with self._lock:
            for job in self.jobs.unfinished():
                if life.advance(job, self.faults, self.containers, self._now_s()):
                    self.jobs.put(job)

    # Used by tests

    def release(self, id: str) -> None:
        with self._lock:
            self.jobs.by_id[id].is_held = False
            self.advance()

    def stop(self, id: str) -> None:
        """Stop a job, as the console or a call does."""
        with self._lock:
            job = self.jobs.by_id[id]
            if job.status not in ENDED and job.stopped_s is None:
                job.stopped_s = self._now_s()
                life.advance(job, self.faults, self.containers, job.stopped_s)
                self.jobs.put(job)

    def preempt(self, id: str, *, restarts: bool = False, sub_status: str = "Preempted") -> None:
        """Take a job's machine away; with `restarts` the job restarts on another."""
        with self._lock:
            job = self.jobs.by_id[id]
            life.preempt(job, self.containers, self._now_s(), restarts, sub_status)
            self.jobs.put(job)

    def vanish(self, id: str) -> None:
        """Remove a job without a trace."""
        with self._lock:
            self._destroy(self.jobs.by_id[id])
            self.jobs.remove(id)

    def kill_all(self) -> None:
        with self._lock:
            for job in self.jobs.by_id.values():
                self._destroy(job)

    def _destroy(self, job: Job) -> None:
        if job.containers is not None:
            self.containers.destroy(job.run_id, job.containers)


def _route(method: str, path: str) -> tuple[str, tuple[str, ...]]:
    for wanted, pattern, action in _ROUTES:
        found = re.fullmatch(pattern, path)
        if method == wanted and found:
            return action, found.groups()
    raise Refused(404, "InvalidAction.NotFound", "Specified api is not found.")
