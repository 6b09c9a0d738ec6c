"""The dashboard: what it is asked, who may, and how it misbehaves.

Beside its own routes, for tests and people who play with it, without credentials: ``/fake/reset``, ``users``,
``behaviour``, ``begin``, ``end``, ``status``, ``remove``, ``kill`` of the job ``id``, ``jobs``, ``requests``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.fakes import contracts
from tests.fakes.dlts.cluster import ACTIVE, Cluster, Job
from tests.fakes.web import BrokenOff, passing_time

_NO_DATABASE = "Cannot create job! Cannot schedule job. Cannot add job into database."
#: What the service behind reads of a job without asking whether it is there.
_NEEDED = ("jobType", "jobtrainingtype", "jobName", "image", "cmd", "resourcegpu", "preemptionAllowed")
_LISTED = 10

Handler = Callable[[Request, str], Awaitable[Response]]


class Dashboard:
    """`folder`: of the cluster, and of what `reset` was told."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.cluster = Cluster(folder, clock)
        #: Email → password and teams.
        self.users: dict[str, dict[str, Any]] = {}
        #: (seconds, user, method, path, status, the client's port)
        self.requests: list[tuple[float, str, str, str, int, int]] = []
        self._settings = folder / "settings.json"
        self._misbehave({})
        if self._settings.exists():
            self._set(json.loads(self._settings.read_text()))

    def _misbehave(self, told: dict[str, Any]) -> None:
        self.outage: Any = told.get("outage", "")
        self.hang = bool(told.get("hang"))
        self.throttled = int(told.get("throttled", 0))
        self.lose_answers = int(told.get("lose_answers", 0))
        self.list_most = int(told.get("list_most", 10**9))

    @property
    def app(self) -> Starlette:
        job = "/clusters/{cluster}/jobs/{id}"
        routes = [
            self._route("GET", "/teams", self._teams),
            self._route("GET", "/teams/{team}/clusters/{cluster}", self._team),
            self._route("POST", "/clusters/{cluster}/jobs", self._submit),
            self._route("POST", "/clusters/{cluster}/jobs/status", self._set_many),
            self._route("GET", f"{job}/status", self._status),
            self._route("PUT", f"{job}/status", self._set_status),
            self._route("GET", f"/v2{job}", self._detail),
            self._route("GET", "/v2/clusters/{cluster}/teams/{team}/jobs", self._list),
            Route("/fake/{verb}", self._control, methods=["GET", "POST"]),
        ]
        return Starlette(routes=routes, lifespan=passing_time(self.cluster))

    def _route(self, method: str, path: str, handler: Handler) -> Route:
        async def handle(request: Request) -> Response:
            while self.hang:  # noqa: ASYNC110 (a reset makes another one)
                await asyncio.sleep(0.02)
            user = self._who(request)
            response = await self._answer(handler, request, user)
            port = request.client.port if request.client else 0
            self.requests.append((self.clock(), user, request.method, request.url.path, response.status_code, port))
            return response

        return Route(f"/api{path}", handle, methods=[method])

    async def _answer(self, handler: Handler, request: Request, user: str) -> Response:
        if self.throttled > 0:
            self.throttled -= 1
            return PlainTextResponse("Too Many Requests", 429, {"Retry-After": "1"})
        if self.outage == "drop":
            return BrokenOff()
        if self.outage:
            return PlainTextResponse("Bad Gateway", int(self.outage))
        if not user:
            return PlainTextResponse("Forbidden", 403)
        if "cluster" in request.path_params and request.path_params["cluster"] not in (".default", "only"):
            return PlainTextResponse("Cluster is not found", 404)
        self.cluster.advance()
        return await handler(request, user)

    def _who(self, request: Request) -> str:
        query = request.query_params
        email, password = query.get("email", ""), query.get("password") or query.get("token")
        known = self.users.get(email)
        return email if known is not None and password == known["password"] else ""

    # Its own routes

    async def _teams(self, _request: Request, user: str) -> Response:
        return JSONResponse([{"id": team, "clusters": [{"id": "only"}]} for team in self.users[user]["teams"]])

    async def _team(self, request: Request, user: str) -> Response:
        if request.path_params["team"] not in self.users[user]["teams"]:
            return PlainTextResponse("Team is not found", 404)
        return JSONResponse({"metadata": json.dumps({"P40": {"num_gpu_per_node": 4}}), "vcName": "x"})

    async def _submit(self, request: Request, user: str) -> Response:
        body = await request.json()
        if fault := _schema_fault("job.schema.json", body):
            return PlainTextResponse(fault, 400)
        team = body.get("vcName") or body["team"]
        if team not in self.users[user]["teams"]:
            return JSONResponse({"error": f"Cannot create job! Access denied to team {team}"})
        id = str(body.get("jobId", ""))
        is_stored = all(name in body for name in _NEEDED) and 0 < len(id) <= 50 and id not in self.cluster.jobs
        if not is_stored:
            return JSONResponse({"error": _NO_DATABASE})
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", id):
            return JSONResponse({"error": "Cannot create job! The name is no part of a pod's name"})
        self.cluster.add(Job(jobId=id, userName=user, vcName=team, params=body, time_s=self.clock()))
        if self.lose_answers > 0:
            self.lose_answers -= 1
            return BrokenOff()
        return JSONResponse({"jobId": id}, 201)

    async def _status(self, request: Request, _user: str) -> Response:
        job = self.cluster.jobs.get(request.path_params["id"])
        if job is None:
            return PlainTextResponse("Job does not exist", 404)
        return JSONResponse({"status": job.shown, **({"message": job.errorMsg} if job.errorMsg else {})})

    async def _set_status(self, request: Request, user: str) -> Response:
        body = await request.json()
        if fault := _schema_fault("status.schema.json", body):
            return PlainTextResponse(fault, 400)
        return JSONResponse({"message": self._changed(request.path_params["id"], body["status"], user)})

    async def _set_many(self, request: Request, user: str) -> Response:
        body = await request.json()
        if fault := _schema_fault("batch-status.schema.json", body):
            return PlainTextResponse(fault, 400)
        return JSONResponse({id: self._changed(id, status, user) for id, status in body["status"].items()})

    def _changed(self, id: str, status: str, user: str) -> str:
        job = self.cluster.jobs.get(id)
        is_killed = status == "killing" and job is not None and job.userName == user and self.cluster.kill(job)
        return "Success, the job is scheduled to be terminated." if is_killed else f"Cannot Kill the job. Job ID: {id}"

    async def _detail(self, request: Request, _user: str) -> Response:
        job = self.cluster.jobs.get(request.path_params["id"])
        return PlainTextResponse("Bad Gateway", 502) if job is None else JSONResponse(_shown(job))

    async def _list(self, request: Request, user: str) -> Response:
        limit = int(request.query_params.get("limit", 0)) or _LISTED
        team = request.path_params["team"]
        mine = [job for job in self.cluster.jobs.values() if job.userName == user and job.vcName == team]
        mine.sort(key=lambda job: job.time_s, reverse=True)
        ended = [job for job in mine if job.jobStatus not in ACTIVE]
        page = [job for job in mine if job.jobStatus in ACTIVE] + ended[:limit]
        return JSONResponse([_shown(job) for job in page[: self.list_most]])

    # Ours

    async def _control(self, request: Request) -> Response:
        body = json.loads(await request.body() or b"{}")
        self.cluster.advance()
        match request.path_params["verb"]:
            case "requests":
                return JSONResponse(self.requests)
            case "jobs":
                return JSONResponse([_shown(job) for job in self.cluster.jobs.values()])
            case "reset":
                self._reset(body)
            case "users":
                self._set(body)
            case "behaviour":
                self.behave(**body)
            case verb:
                self._do(verb, self.cluster.jobs[body["id"]], body)
        self.cluster.advance()
        return JSONResponse({})

    def behave(self, **told: Any) -> None:
        for name in ("hold", "pretended_s", "kill_grace_s"):
            if name in told:
                setattr(self.cluster, name, told[name])
        for name in ("outage", "hang", "lose_answers", "list_most", "throttled"):
            if name in told:
                setattr(self, name, told[name])

    def _do(self, verb: str, job: Job, body: dict[str, Any]) -> None:
        match verb:
            case "begin":
                job.is_begun = True
            case "end":
                self.cluster.end(job, body["status"], body.get("message", ""))
            case "kill":
                self.cluster.kill(job)
            case "remove":
                self.cluster.remove(job.jobId)
            case "status":
                job.odd_status = body["status"]

    def _reset(self, settings: dict[str, Any]) -> None:
        for id in tuple(self.cluster.jobs):
            self.cluster.remove(id)
        self._misbehave({})
        self.cluster.hold, self.cluster.pretended_s = False, None
        self.requests.clear()
        self._settings.parent.mkdir(parents=True, exist_ok=True)
        self._settings.write_text(json.dumps(settings))
        self._set(settings)

    def _set(self, settings: dict[str, Any]) -> None:
        self.users = settings.get("users", {})
        self.cluster.mounts = settings.get("mounts", [])


def _shown(job: Job) -> dict[str, Any]:
    return {
        "jobId": job.jobId, "jobName": job.params["jobName"], "userName": job.userName, "vcName": job.vcName,
        "jobStatus": job.shown, "errorMsg": job.errorMsg, "jobTime": job.time_s, "jobParams": job.params,
        "starts": len(job.containers),
    }  # fmt: skip


def _schema_fault(file: str, body: object) -> str:
    """By the dashboard's own validators, where they are at hand."""
    root = contracts.folder()
    if root is None:
        return ""
    import jsonschema_rs

    schema = json.loads((root / "dlts" / file).read_text())
    error = next(iter(jsonschema_rs.Draft7Validator(schema).iter_errors(body)), None)
    return "" if error is None else error.message
