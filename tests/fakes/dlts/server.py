"""The dashboard with the REST service behind it, and their faults."""

from __future__ import annotations

import email.utils
import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.fakes import web
from tests.fakes.dlts.cluster import ACTIVE, KILLABLE, Cluster, Job
from tests.fakes.sandbox import Mount
from tests.fakes.web import FakeService, passing_time

CLUSTER = "default-cluster"
_KIND = "P40"


class Refused(Exception):
    """A request that is answered with an error. `status`: of the answer, which is text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Faults(web.Faults):
    """`backend`: the service behind the dashboard is away. `throttled`: number of calls to refuse.

    `database`: it is not connected. `queries`: queries that fail: `list`, `status`, `select` and `update` of a kill.
    The service logs each failure and answers as if nothing had been found.
    """

    def __init__(self) -> None:
        super().__init__()
        self.backend = self.database = False
        self.queries: list[str] = []
        self.throttled = 0


class Dashboard(FakeService):
    """`folder`: persistent state. `now`: seconds since the epoch."""

    def __init__(self, folder: Path, now: Callable[[], float]) -> None:
        self._folder, self._now = folder, now
        #: Time, user, method, path, status and connection of each call.
        self.requests: list[tuple[float, str, str, str, int, str]] = []
        self._begin()
        routes = [
            Route("/fake/{verb}", self._control, methods=["GET", "POST"]),
            Route("/api/{path:path}", self._serve, methods=["GET", "POST", "PUT"]),
        ]
        self.app = Starlette(routes=routes, lifespan=passing_time(self))

    def _begin(self) -> None:
        self.cluster, self.faults = Cluster(self._folder, self._now), Faults()
        self.users: dict[str, Any] = {}
        if (self._folder / "told.json").exists():
            self._take(json.loads((self._folder / "told.json").read_text()))

    # Control

    def _set(self, told: Mapping[str, Any]) -> None:
        """`users` (address → `password`, `teams`), `mounts` (pairs: local folder, path in pods)."""
        kept = {"users": self.users, "mounts": [[str(one.source), str(one.target)] for one in self.cluster.mounts]}
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "told.json").write_text(json.dumps({**kept, **told}))
        self._take({**kept, **told})

    def _take(self, told: Mapping[str, Any]) -> None:
        self.users = dict(told["users"])
        self.cluster.mounts = [Mount(Path(here), Path(there)) for here, there in told["mounts"]]

    def _reset(self, told: Mapping[str, Any]) -> None:
        """Replace the database; nothing of the old one runs."""
        self.cluster.clear()
        self.requests.clear()
        self._begin()
        self._set(told)

    async def _control(self, request: Request) -> Response:
        told = await request.json() if request.method == "POST" else {}
        verb = request.path_params["verb"]
        if verb == "requests":
            return JSONResponse(self.requests)
        if verb == "jobs":
            return JSONResponse([self._row(job) for job in self.cluster.jobs.values()])
        if verb in ("reset", "users", "behaviour"):
            {"reset": self._reset, "users": self._set, "behaviour": lambda told: self.behave(**told)}[verb](told)
        else:
            self._change(verb, self.cluster.jobs[told["id"]], told.get("status", ""))
        return JSONResponse({})

    def _change(self, verb: str, job: Job, status: str) -> None:
        if verb == "begin":
            job.is_begun = True
        elif verb == "status":
            job.forced = status
        elif verb == "owner":
            job.userName = status
        else:
            {"kill": self.cluster.kill, "remove": self.cluster.remove}[verb](job)
        self.advance()

    # Calls

    async def _serve(self, request: Request) -> Response:
        await self.until_answering()
        self.advance()
        path, user = f"/api/{request.path_params['path']}", ""
        answer = self._out_of_order()
        if answer is None:
            try:
                user = self._user(request)
                answer = await self._answer(request, path.split("/")[2:], user)
            except Refused as error:
                answer = PlainTextResponse(str(error), error.status)
        if request.method == "POST" and path.endswith("/jobs") and answer.status_code == 200:
            answer = self.lost_or(answer)
        self.requests.append((self._now(), user, request.method, path, answer.status_code, str(request.client)))
        return answer

    def _out_of_order(self) -> Response | None:
        if not self.faults.outage and self.faults.throttled:
            self.faults.throttled -= 1
            return PlainTextResponse("slower", 429, {"Retry-After": "1"})
        return self.outage()

    def _user(self, request: Request) -> str:
        """The user, authenticated by the password in the query; `token` is its older name."""
        email = request.query_params.get("email", "")
        password = request.query_params.get("password", request.query_params.get("token", ""))
        if not password:
            raise Refused(403, "Forbidden")
        if password != self.users.get(email, {}).get("password"):
            raise Refused(403, "Invalid token")
        return email

    async def _answer(self, request: Request, parts: list[str], user: str) -> Response:
        is_v2 = parts[0] == "v2"
        match request.method, is_v2, parts[is_v2:]:
            case "GET", False, ["teams"]:  # an error of the service behind is an empty list
                return JSONResponse([] if self.faults.backend else [self._team(team) for team in self._teams(user)])
            case "GET", _, ["teams", team, "clusters", cluster]:
                self._check(cluster)
                return JSONResponse(self._virtual_cluster(user, team, is_v2))
            case "POST", False, ["clusters", cluster, "jobs"]:
                self._check(cluster)
                return await self._submit(request, user)
            case "POST", False, ["clusters", cluster, "jobs", "status"]:
                self._check(cluster)
                return self._kill_many(user, (await request.json())["status"])
            case "GET", True, ["clusters", cluster, "teams", team, "jobs"]:
                self._check(cluster)
                if self.faults.database:  # the answer lacks its four lists
                    return JSONResponse([None] * 4)
                return JSONResponse([] if "list" in self.faults.queries else self._list(request, user, team))
            case "GET", _, ["clusters", cluster, "jobs", id]:
                self._check(cluster)
                return JSONResponse(self._detail(user, id))
            case "GET", False, ["clusters", cluster, "jobs", id, "status"]:
                self._check(cluster)
                return JSONResponse(self._status(id))
            case "PUT", False, ["clusters", cluster, "jobs", id, "status"]:
                self._check(cluster)
                return self._put_status(user, id, (await request.json()).get("status"))
        raise Refused(404, "Not Found")

    def _check(self, cluster: str) -> None:
        if cluster not in (".default", CLUSTER):
            raise Refused(404, "Cluster is not found")
        if self.faults.backend:
            raise Refused(502, "Bad Gateway")

    def _check_database(self) -> None:
        if self.faults.database:
            raise Refused(502, "Bad Gateway")

    def _teams(self, user: str) -> list[str]:
        return list(self.users[user]["teams"])

    def _team(self, team: str) -> dict[str, Any]:
        gpus = {_KIND: {"perNode": 4, "quota": 8}}
        return {"id": team, "clusters": [{"id": CLUSTER, "admin": False, "gpus": gpus}]}

    def _virtual_cluster(self, user: str, team: str, is_v2: bool) -> dict[str, Any]:
        """API version 1 returns the database's row, which contains JSON as text."""
        if team not in self._teams(user):
            raise Refused(404, "Team is not found")
        if is_v2:
            return {"config": {}, "runningJobs": 0, "types": {_KIND: {"gpu": {"total": 8, "used": 0, "available": 8}}}}
        texts = {"quota": json.dumps({_KIND: 8}), "metadata": json.dumps({_KIND: {"num_gpu_per_node": 4}})}
        return {"vcName": team, "parent": "default", **texts, "gpu_capacity": {_KIND: 8}, "gpu_available": {_KIND: 8}}

    async def _submit(self, request: Request, user: str) -> Response:
        """Submit a job. The status is always 200, whatever the service behind answers."""
        job = await request.json()
        if isinstance(job, dict) and not job.get("team") and job.get("vcName"):
            job["team"] = job["vcName"]
        if not isinstance(job, dict) or not isinstance(job.get("team"), str):
            raise Refused(400, " should have required property 'team'")
        job |= {"userName": user, "familyToken": str(uuid.uuid4()), "isParent": 1}
        error = "" if job.get("vcName") in (None, *self._teams(user)) else "Access Denied!"
        error = error or self.cluster.add(job)
        self.advance()
        answer = {"error": f"Cannot create job!{error}"} if error else {"jobId": job.get("jobId") or job["familyToken"]}
        return PlainTextResponse(json.dumps(answer) + "\n")

    def _list(self, request: Request, user: str, team: str) -> list[dict[str, Any]]:
        """All active jobs of a user, and the newest `limit` others."""
        limit = int(request.query_params.get("limit") or 0) or 10
        mine = [job for job in self.cluster.jobs.values() if (job.userName, job.vcName) == (user, team)]
        over = [job for job in mine if job.status not in ACTIVE]
        found = {job.jobId for job in mine if job.status in ACTIVE} | {job.jobId for job in over[-limit:]}
        return [self._row(job) for job in reversed(mine) if job.jobId in found][: self.faults.list_most]

    def _detail(self, user: str, id: str) -> dict[str, Any]:
        """A job; empty if it is unknown or another user's."""
        job = self.cluster.jobs.get(id)
        return self._row(job) if job is not None and job.userName == user else {}

    def _row(self, job: Job) -> dict[str, Any]:
        return {
            "jobId": job.jobId,
            "jobName": job.jobParams["jobName"],
            "userName": job.userName,
            "vcName": job.vcName,
            "jobStatus": job.status,
            "jobStatusDetail": None,
            "jobType": job.jobParams["jobType"],
            "jobTime": _date(job.submitted_s),
            "jobParams": job.jobParams,
            "priority": 100,
        }

    def _status(self, id: str) -> dict[str, Any]:
        """The status of any user's job."""
        self._check_database()
        if (job := self.cluster.jobs.get(id)) is None or "status" in self.faults.queries:
            raise Refused(404, "Not Found")
        return {"status": job.status, **({"message": job.errorMsg} if job.errorMsg else {})}

    def _put_status(self, user: str, id: str, status: object) -> Response:
        if status not in ("approved", "killing", "pausing", "queued"):
            raise Refused(400, ".status should be equal to one of the allowed values")
        job = self.cluster.jobs.get(id)
        done = job is not None and job.userName == user and status == "killing" and self.cluster.kill(job)
        words = "Success, the job is scheduled to be terminated." if done else f"Cannot Kill the job. Job ID:{id}"
        return PlainTextResponse(json.dumps({"result": words}) + "\n")

    def _kill_many(self, user: str, wanted: Mapping[str, str]) -> Response:
        """Kill jobs. The result omits unknown jobs, and all jobs if the lookup failed."""
        self._check_database()
        results = {}
        found = [] if "select" in self.faults.queries else [id for id in wanted if id in self.cluster.jobs]
        for id in (id for id in found if wanted[id] == "killing"):
            job = self.cluster.jobs[id]
            before = job.status
            if job.userName != user:
                results[id] = "unauthorized to kill"
            elif before in KILLABLE and "update" in self.faults.queries:
                results[id] = "failed to kill"
            else:
                results[id] = "successfully killed" if self.cluster.kill(job) else f'cannot kill a(n) "{before}" job'
        return JSONResponse({"killing": json.dumps({"result": results})})


def _date(seconds: float) -> str:

    return email.utils.formatdate(seconds, usegmt=True)
