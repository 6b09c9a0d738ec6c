"""The rest-server: what it is asked, who may, how often, and how it misbehaves.

Beside the vendor's routes, for tests and people who play with it, without credentials:

* ``POST /fake/reset`` users, storages and limits; everything else is forgotten
* ``POST /fake/users`` the same, and jobs go on
* ``POST /fake/behaviour`` fields of `Misbehaviour` and of `cluster.Behaviour`
* ``POST /fake/begin``, ``end``, ``stop``, ``retry``, ``remove``, ``state`` of the job ``user``, ``name``
* ``GET /fake/jobs``, ``GET /fake/requests`` what there is, and what was asked
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import urllib.parse
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.fakes.openpai import answers, protocol
from tests.fakes.openpai.cluster import Cluster, Job, job_of
from tests.fakes.openpai.limits import Limit, limits
from tests.fakes.web import BrokenOff, passing_time

_API = "/rest-server/api/v2"
_MOST_LISTED, _LISTED = 50_000, 5_000
_MOST_BODY = 100 * 1024


@dataclass
class Misbehaviour:
    """`/fake/behaviour`."""

    #: "drop": connections are broken off; a number: that status, for every call.
    outage: str | int = ""
    #: Questions are taken, and not answered before this ends.
    hang: bool = False
    #: Submissions that are taken, and whose answer is lost.
    lose_answers: int = 0
    #: Calls that are answered 429, with a Retry-After of `retry_after_s` in this form: seconds or date.
    refuse_calls: int = 0
    retry_after_s: int = 1
    retry_after_form: str = "seconds"
    #: Entries that a list has at most, whatever is asked.
    list_most: int = _MOST_LISTED
    #: Jobs that a user may have at a time; None: any number.
    quota: int | None = None
    #: Seconds after which a job is on the list.
    list_lag_s: float = 0.0


@dataclass
class User:
    password: str = ""
    tokens: list[str] = field(default_factory=list)
    virtual_clusters: list[str] = field(default_factory=lambda: ["default"])
    #: Storages that this user may use; None: all.
    storages: list[str] | None = None


class Refusal(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.response = JSONResponse({"code": code, "message": message}, status)


Handler = Callable[[Request, str], Awaitable[Response]]


class RestServer:
    """`folder`: of the cluster, and of what `reset` was told."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.cluster = Cluster(folder, clock)
        self.wrong = Misbehaviour()
        self.users: dict[str, User] = {}
        #: Name → folder of this machine that is mounted.
        self.storages: dict[str, str] = {}
        self.limits: dict[str, Limit] = limits(clock)
        #: (seconds, user, kind, method, path, status)
        self.requests: list[tuple[float, str, str, str, str, int]] = []
        self._settings = folder / "settings.json"
        if self._settings.exists():
            self._set(json.loads(self._settings.read_text()))

    @property
    def app(self) -> Starlette:
        job = "/jobs/{user}~{name}"
        routes = [
            self._route("GET", "/info", self._info, needs_token=False),
            self._route("POST", "/authn/basic/login", self._login, needs_token=False),
            self._route("GET", "/tokens/check", self._check),
            self._route("GET", "/users/{user}", self._user),
            self._route("GET", "/storages", self._list_storages),
            self._route("POST", "/jobs", self._submit, kind="submit"),
            self._route("GET", "/jobs", self._list, kind="list"),
            self._route("GET", job, self._detail),
            self._route("GET", f"{job}/config", self._config),
            self._route("PUT", f"{job}/executionType", self._execute),
            Route("/fake/{verb}", self._control, methods=["GET", "POST"]),
        ]
        return Starlette(routes=routes, lifespan=passing_time(self.cluster))

    # Every call

    def _route(self, method: str, path: str, handler: Handler, *, kind: str = "", needs_token: bool = True) -> Route:
        async def handle(request: Request) -> Response:
            user = self._who(request)
            while self.wrong.hang:  # noqa: ASYNC110 (a reset makes another one)
                await asyncio.sleep(0.02)
            try:
                response = self._refusal(user, kind, request) or await self._answer(handler, request, user, needs_token)
            except Refusal as refusal:
                response = refusal.response
            self._note(user, kind, request, response.status_code)
            return response

        return Route(_API + path, handle, methods=[method])

    async def _answer(self, handler: Handler, request: Request, user: str, needs_token: bool) -> Response:
        if needs_token and not user:
            raise Refusal(401, "UnauthorizedUserError", "Your token is invalid.")
        self.cluster.advance()
        return await handler(request, user)

    def _refusal(self, user: str, kind: str, request: Request) -> Response | None:
        if self.wrong.outage == "drop":
            return BrokenOff()
        if self.wrong.outage:
            return PlainTextResponse("upstream is away", int(self.wrong.outage))
        if self.wrong.refuse_calls > 0:
            self.wrong.refuse_calls -= 1
            return self._too_many(self.wrong.retry_after_s)
        address = request.client.host if request.client else ""
        waits = [self.limits["all"].count(address), self.limits[kind].count(user) if kind in self.limits else None]
        wait_s = max((one for one in waits if one is not None), default=None)
        return None if wait_s is None else self._too_many(wait_s)

    def _too_many(self, seconds: float) -> Response:
        is_date = self.wrong.retry_after_form == "date"
        told = email.utils.formatdate(self.clock() + seconds, usegmt=True) if is_date else str(int(seconds))
        text = "Too many requests, please try again later."
        return PlainTextResponse(text, 429, headers={"Retry-After": told})

    def _note(self, user: str, kind: str, request: Request, status: int) -> None:
        self.requests.append((self.clock(), user, kind, request.method, request.url.path, status))

    def _who(self, request: Request) -> str:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        known = (name for name, user in self.users.items() if scheme == "Bearer" and token in user.tokens)
        return next(known, "")

    # The vendor's routes

    async def _info(self, _request: Request, _user: str) -> Response:
        return JSONResponse({
            "name": "PAI RestServer", "version": "v1.8.1", "launcherType": "k8s", "authnMethod": "basic",
        })  # fmt: skip

    async def _login(self, request: Request, _user: str) -> Response:
        form = dict(urllib.parse.parse_qsl((await request.body()).decode()))
        name = str(form.get("username"))
        user = self.users.get(name)
        if user is None:
            raise Refusal(404, "NoUserError", f"User {name} is not found.")
        if not user.password or form.get("password") != user.password:
            raise Refusal(400, "IncorrectPasswordError", "Password is incorrect.")
        token = f"jwt-of-{name}-{len(user.tokens)}"
        user.tokens.append(token)
        return JSONResponse({"token": token, "user": name, "admin": False})

    async def _check(self, _request: Request, user: str) -> Response:
        return JSONResponse({"username": user, "admin": False})

    async def _user(self, request: Request, _user: str) -> Response:
        name = request.path_params["user"]
        if name not in self.users:
            raise Refusal(404, "NoUserError", f"User {name} is not found.")
        return JSONResponse({
            "username": name, "admin": False, "virtualCluster": self.users[name].virtual_clusters,
            "storageConfig": [], "email": f"{name}@example.com", "extension": {}, "grouplist": ["default"],
        })  # fmt: skip

    async def _list_storages(self, _request: Request, user: str) -> Response:
        return JSONResponse({
            "storages": [
                {"name": name, "share": True, "volumeName": f"{name}-pv", "default": False}
                for name in self._storages_of(user)
            ]
        })  # fmt: skip

    def _storages_of(self, user: str) -> list[str]:
        allowed = self.users[user].storages
        return [name for name in self.storages if allowed is None or name in allowed]

    async def _submit(self, request: Request, user: str) -> Response:
        if not request.headers.get("Content-Type", "").startswith("text/yaml"):
            raise Refusal(400, "InvalidProtocolError", "data should be object")
        body = await request.body()
        if len(body) > _MOST_BODY:
            raise Refusal(413, "UnknownError", "request entity too large")
        try:
            config = protocol.parsed(body.decode())
        except protocol.InvalidProtocol as error:
            raise Refusal(400, "InvalidProtocolError", str(error)) from None
        if (user, config["name"]) in self.cluster.jobs:
            raise Refusal(409, "ConflictJobError", f"Job name {config['name']} already exists.")
        cluster = (config.get("defaults") or {}).get("virtualCluster") or "default"
        if cluster not in self.users[user].virtual_clusters:
            raise Refusal(403, "ForbiddenUserError", f"User {user} is not allowed to do operation in {cluster}")
        mounts = self._mounts(user, config)
        self._count(user)
        self.cluster.add(job_of(user, config, mounts, round(self.clock() * 1000)))
        if self.wrong.lose_answers > 0:
            self.wrong.lose_answers -= 1
            return BrokenOff()
        return JSONResponse({"status": 202, "message": f"update job {config['name']} successfully"}, 202)

    def _count(self, user: str) -> None:
        most = self.wrong.quota
        live = sum(job.user == user and job.completed_ms is None for job in self.cluster.jobs.values())
        if most is not None and live >= most:
            raise Refusal(403, "NoEnoughQuotaError", f"User {user} has {live} of {most} jobs")

    def _mounts(self, user: str, config: dict[str, Any]) -> list[list[str]]:
        mounts = []
        for storage in (config.get("extras") or {}).get("storages") or []:
            name = storage["name"]
            if name not in self._storages_of(user):
                raise Refusal(404, "NoStorageError", f"Storage {name} is not found.")
            mounts.append([self.storages[name], storage.get("mountPath") or f"/mnt/{name}"])
        return mounts

    async def _list(self, request: Request, _user: str) -> Response:
        query = request.query_params
        limit = int(query.get("limit", _LISTED))
        if limit > _MOST_LISTED:
            raise Refusal(400, "InvalidParametersError", f"Limit exceeds max number {_MOST_LISTED}.")
        found = [job for job in self.cluster.jobs.values() if self._is_listed(job, query)]
        field_, _, direction = query.get("order", "submissionTime,DESC").partition(",")
        key = {"submissionTime": lambda job: job.submitted_ms, "jobName": lambda job: job.name}[field_]
        found.sort(key=key, reverse=direction != "ASC")
        offset = int(query.get("offset", 0))
        page = [answers.summary(job) for job in found[offset : offset + min(limit, self.wrong.list_most)]]
        if query.get("withTotalCount") == "true":
            return JSONResponse({"totalCount": len(found), "data": page})
        return JSONResponse(page)

    def _is_listed(self, job: Job, query: Any) -> bool:
        word = query.get("keyword", "")
        return (
            query.get("username") in (None, job.user)
            and query.get("vc") in (None, job.virtual_cluster)
            and query.get("state") in (None, job.state)
            and any(word in text for text in (job.name, job.user, job.virtual_cluster))
            and self.clock() * 1000 >= job.submitted_ms + self.wrong.list_lag_s * 1000
        )

    def _job(self, request: Request) -> Job:
        user, name = request.path_params["user"], request.path_params["name"]
        job = self.cluster.jobs.get((user, name))
        if job is None:
            raise Refusal(404, "NoJobError", f"Job {user}~{name} is not found.")
        return job

    async def _detail(self, request: Request, _user: str) -> Response:
        return JSONResponse(answers.detail(self._job(request)))

    async def _config(self, request: Request, _user: str) -> Response:
        return PlainTextResponse(self._job(request).config, media_type="text/yaml")

    async def _execute(self, request: Request, user: str) -> Response:
        job = self._job(request)
        if job.user != user:
            raise Refusal(403, "ForbiddenUserError", f"User {user} is not allowed to operate the job.")
        value = (await request.json()).get("value")
        if value not in ("START", "STOP"):
            raise Refusal(400, "InvalidParametersError", "data.value should be equal to one of the allowed values")
        if value == "STOP":
            self.cluster.stop(job)
        return JSONResponse({"status": 202, "message": f"execute job {job.name} successfully"}, 202)

    # Ours

    async def _control(self, request: Request) -> Response:
        body = json.loads(await request.body() or b"{}")
        self.cluster.advance()
        match request.path_params["verb"]:
            case "requests":
                return JSONResponse(self.requests)
            case "jobs":
                return JSONResponse([
                    {**answers.summary(job), "containers": job.containers, "extras": protocol.extras(job.config)}
                    for job in self.cluster.jobs.values()
                ])  # fmt: skip
            case "reset":
                self._reset(body)
            case "users":
                self._set(body)
            case "behaviour":
                self.behave(**body)
            case verb:
                self._do(verb, self.cluster.jobs[body["user"], body["name"]], body)
        self.cluster.advance()
        return JSONResponse({})

    def _do(self, verb: str, job: Job, body: dict[str, Any]) -> None:
        match verb:
            case "begin":
                job.is_begun = True
            case "end":
                self.cluster.end(job, body["code"])
            case "stop":
                self.cluster.stop(job)
            case "retry":
                self.cluster.retry(job)
            case "remove":
                self.cluster.remove(job.user, job.name)
            case "state":
                job.odd_state = body.get("state", "")
                job.waits_as = body.get("subState", "")

    def behave(self, **changes: Any) -> None:
        for part in (self.wrong, self.cluster.behaviour):
            for one in fields(part):
                if one.name in changes:
                    setattr(part, one.name, changes[one.name])

    def _reset(self, settings: dict[str, Any]) -> None:
        for user, name in tuple(self.cluster.jobs):
            self.cluster.remove(user, name)
        self.wrong, self.limits = Misbehaviour(), limits(self.clock)
        self.cluster.behaviour = type(self.cluster.behaviour)()
        self.requests.clear()
        self._settings.parent.mkdir(parents=True, exist_ok=True)
        self._settings.write_text(json.dumps(settings))
        self._set(settings)

    def _set(self, settings: dict[str, Any]) -> None:
        self.users = {name: User(**user) for name, user in settings.get("users", {}).items()}
        self.storages = settings.get("storages", {})
        for name, (most, window_s) in settings.get("limits", {}).items():
            self.limits[name] = Limit(most, window_s, self.clock)
