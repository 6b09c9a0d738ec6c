"""The REST server behind its gateway, with faults."""

from __future__ import annotations

import email.utils
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.fakes import web
from tests.fakes.openpai import answers, protocol
from tests.fakes.openpai.accounts import Accounts
from tests.fakes.openpai.cluster import Cluster, Job
from tests.fakes.openpai.limits import DEPLOYED, Limits
from tests.fakes.openpai.protocol import Refused
from tests.fakes.openpai.runtime import Storage
from tests.fakes.web import FakeService, passing_time

_MOST_LISTED, _LISTED = 50_000, 5_000


class Faults(web.Faults):
    """`quota`: maximum number of unfinished jobs. `refuse_calls`: number of calls to refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.quota: int | None = None
        self.list_lag_s = 0.0
        self.refuse_calls, self.retry_after_s, self.retry_after_form = 0, 60, "seconds"


class RestServer(FakeService):
    """`folder`: persistent state. `now`: seconds since the epoch."""

    def __init__(self, folder: Path, now: Callable[[], float]) -> None:
        self._folder, self._now = folder, now
        self._begin()
        #: Time, user, kind, method, path, status of each call.
        self.requests: list[tuple[float, str, str, str, str, int]] = []
        routes = [
            Route("/fake/{verb}", self._control, methods=["GET", "POST"]),
            Route("/rest-server/{path:path}", self._serve, methods=["GET", "POST", "PUT", "DELETE"]),
        ]
        self.app = Starlette(routes=routes, lifespan=passing_time(self))

    def _begin(self) -> None:
        self.cluster, self.accounts = Cluster(self._folder, self._now), Accounts(self._folder)
        self.limits, self.faults = Limits(self._now), Faults()
        self._set_storages(self.accounts.users.pop("", {}))

    # Control

    def _set(self, told: Mapping[str, Any]) -> None:
        """`users`, `storages` (name → folder, or fields of `Storage`), `exports` and `blobs` of `Network`, `limits`."""
        kept = {kind: told.get(kind, {}) for kind in ("storages", "exports", "blobs")}
        self.accounts.replace({**told.get("users", {}), "": kept})
        del self.accounts.users[""]
        self._set_storages(kept)
        self.limits.windows = {**DEPLOYED, **{kind: tuple(one) for kind, one in told.get("limits", {}).items()}}

    def _set_storages(self, kept: Mapping[str, Mapping[str, Any]]) -> None:
        storages = kept.get("storages", {})
        told = {name: {"folder": one} if isinstance(one, str) else one for name, one in storages.items()}
        self.cluster.storages = {name: Storage(**one) for name, one in told.items()}
        network = self.cluster.network
        network.exports, network.blobs = dict(kept.get("exports", {})), dict(kept.get("blobs", {}))
        nfs = [one for one in self.cluster.storages.values() if one.server]
        network.exports |= {f"{one.server}:{one.path}": one.folder for one in nfs}

    def _reset(self, told: Mapping[str, Any]) -> None:
        """Replace the cluster; nothing of the old one runs."""
        for job in self.cluster.jobs.values():
            self.cluster.destroy(job)
        shutil.rmtree(self._folder, ignore_errors=True)
        self.requests.clear()
        self._begin()
        self._set(told)

    async def _control(self, request: Request) -> Response:
        told = await request.json() if request.method == "POST" else {}
        verb = request.path_params["verb"]
        if verb == "requests":
            return JSONResponse(self.requests)
        if verb == "jobs":
            return JSONResponse([self._shown(job) for job in self.cluster.jobs.values()])
        {"reset": self._reset, "users": self._set, "behaviour": lambda told: self.behave(**told)}.get(
            verb, lambda told: self._change(verb, **told)
        )(told)
        return JSONResponse({})

    def _shown(self, job: Job) -> dict[str, Any]:
        return {**answers.summary(job), "extras": job.config.get("extras", {}), "config": job.config}

    def _change(self, verb: str, user: str, name: str, **told: Any) -> None:
        job = self.cluster.jobs[user, name]
        if verb == "begin":
            job.is_begun, job.forced_sub_state = True, ""
        elif verb == "state":
            job.forced_state = told.get("state", "")
            job.forced_sub_state = told.get("subState", "")
        else:
            {
                "stop": self.cluster.stop,
                "remove": self.cluster.remove,
                "end": lambda job: self.cluster.end(job, told["code"]),
            }[verb](job)
        self.advance()

    # Calls

    async def _serve(self, request: Request) -> Response:
        await self.until_answering()
        path, kind = "/" + request.path_params["path"], _kind(request)
        user = ""
        try:
            self.advance()
            answer = self._out_of_order() or self._counted("all", str(request.client and request.client.host))
            if answer is None:
                user = "" if _is_open(path) else self.accounts.named_by(request.headers.get("authorization", ""))
                answer = self._counted(kind, user) if kind else None
            answer = answer or await self._answer(request, path, user)
        except Refused as error:
            answer = JSONResponse({"code": error.code or None, "message": str(error)}, error.status)
        if kind == "submit" and answer.status_code == 202:
            answer = self.lost_or(answer)
        self.requests.append((self._now(), user, kind, request.method, path, answer.status_code))
        return answer

    def _out_of_order(self) -> Response | None:
        if not self.faults.outage and self.faults.refuse_calls:
            self.faults.refuse_calls -= 1
            return self._too_many(self.faults.retry_after_s)
        return self.outage()

    def _counted(self, kind: str, caller: str) -> Response | None:
        window_s = self.limits.refuses(kind, caller)
        return self._too_many(window_s) if window_s else None

    def _too_many(self, wait_s: float) -> Response:
        is_date = self.faults.retry_after_form == "date"
        after = email.utils.formatdate(self._now() + wait_s, usegmt=True) if is_date else str(int(wait_s))
        return PlainTextResponse("Too many requests, please try again later.", 429, {"Retry-After": after})

    async def _answer(self, request: Request, path: str, user: str) -> Response:
        method, parts = request.method, [unquote(part) for part in path.strip("/").split("/")]
        match method, parts[2:] if parts[0] == "api" and parts[1:2] in (["v1"], ["v2"]) else []:
            case "GET", ["info"]:
                shown = {"name": "PAI RESTful API", "version": "v1.8.1", "launcherType": "k8s", "authnMethod": "basic"}
                return JSONResponse(shown)
            case "POST", ["authn", "basic", "login"]:
                return JSONResponse(self.accounts.login(await _form(request)))
            case "GET", ["tokens", "check"]:
                return JSONResponse({"username": user, "application": False, "admin": False})
            case "GET", ["user" | "users", name]:
                return JSONResponse(self.accounts.shown(name))
            case "GET", ["virtual-clusters"]:
                return JSONResponse(answers.clusters(("default", "vip")))
            case "GET", ["storages"]:
                return JSONResponse({"storages": [self._storage(name) for name in self.cluster.storages]})
            case "GET", ["storages", name]:
                return JSONResponse({**self._storage(name), **answers.volume(self.cluster.storages[name])})
            case "GET", ["jobs"]:
                return JSONResponse(self._list({key: value[-1] for key, value in parse_qs(request.url.query).items()}))
            case "POST", ["jobs"]:
                return self._submit(user, (await request.body()).decode(), request.headers.get("content-type", ""))
            case _, ["jobs", framework, *rest]:
                return await self._of_job(request, user, framework, rest)
        raise _no_api(path)

    def _storage(self, name: str) -> dict[str, Any]:
        if name not in self.cluster.storages:
            raise Refused(404, "NoStorageError", f"Storage {name} is not found.")
        return {"name": name, "share": self.cluster.storages[name].share, "volumeName": f"{name}-pv", "default": False}

    async def _of_job(self, request: Request, user: str, framework: str, rest: list[str]) -> Response:
        owner, _, name = framework.partition("~")
        if (job := self.cluster.jobs.get((owner, name))) is None:
            raise Refused(404, "NoJobError", f"Job {framework} is not found.")
        match request.method, rest:
            case "GET", [] | ["attempts", _]:
                return JSONResponse(answers.detail(job))
            case "GET", ["config"]:  # JSON, regardless of its content type
                return Response(JSONResponse(yaml.load(job.text, protocol.LOADER)).body, media_type="text/yaml")
            case "PUT", ["executionType"]:
                return self._execute(user, job, str((await request.json()).get("value")))
        raise _no_api(str(request.url.path))

    def _execute(self, user: str, job: Job, value: str) -> Response:
        if value not in ("STOP", "START"):
            raise Refused(400, "InvalidParametersError", '"value" must be one of [STOP, START]')
        name = f"{job.user}~{job.name}"
        if user != job.user:
            raise Refused(403, "ForbiddenUserError", f"User {user} is not allowed to execute job {name}.")
        if value == "STOP":
            self.cluster.stop(job)
        return JSONResponse({"status": 202, "message": f"Execute job {name} successfully."}, 202)

    def _list(self, query: Mapping[str, str]) -> Any:
        limit = int(query.get("limit", _LISTED))
        if limit > _MOST_LISTED:
            raise Refused(400, "InvalidParametersError", f"Limit exceeds max number {_MOST_LISTED}.")
        seen_ms = (self._now() - self.faults.list_lag_s) * 1000
        jobs = [job for job in self.cluster.jobs.values() if not self.faults.list_lag_s or job.submitted_ms <= seen_ms]
        found = [answers.summary(job) for job in reversed(jobs)]
        for field, key in {"username": "username", "vc": "virtualCluster", "state": "state"}.items():
            if field in query:
                found = [one for one in found if one[key] in query[field].split(",")]
        if word := query.get("keyword"):
            found = [one for one in found if any(word in one[key] for key in ("username", "name", "virtualCluster"))]
        offset = int(query.get("offset", 0))
        page = found[offset : offset + limit][: self.faults.list_most]
        return {"totalCount": len(found), "data": page} if query.get("withTotalCount") == "true" else page

    def _submit(self, user: str, text: str, kind: str) -> Response:
        """Validate in the server's order. Only a text body is a job; content type JSON is refused."""
        config = protocol.parsed(text if kind.startswith("text/") else "[object Object]")
        name = config["name"]
        if (user, name) in self.cluster.jobs:
            raise Refused(409, "ConflictJobError", f"Job {user}~{name} already exists.")
        cluster = answers.virtual_cluster(config)
        if cluster not in self.accounts.clusters(user):
            raise Refused(403, "ForbiddenUserError", f"User {user} is not allowed to do operation in {cluster}")
        for storage in (config.get("extras") or {}).get("storages", []):
            self._storage(storage.get("name", ""))
        self._check_quota(user)
        self.cluster.add(user, config, protocol.masked(text))
        self.advance()
        return JSONResponse({"status": 202, "message": f"Update job {name} for user {user} successfully."}, 202)

    def _check_quota(self, user: str) -> None:
        quota = self.faults.quota
        used = sum(job.user == user and job.completed_ms is None for job in self.cluster.jobs.values())
        if quota is not None and used >= quota:
            raise Refused(403, "NoEnoughQuotaError", f"User {user} has {used} of {quota} jobs.")


def _kind(request: Request) -> str:
    if not request.url.path.rstrip("/").endswith("/jobs"):
        return ""
    return {"GET": "list", "POST": "submit"}.get(request.method, "")


def _is_open(path: str) -> bool:
    return path.endswith(("/info", "/authn/basic/login")) or path == "/api/v1/token"


async def _form(request: Request) -> Mapping[str, Any]:
    if request.headers.get("content-type", "").startswith("application/json"):
        told: Mapping[str, Any] = await request.json()
        return told
    return {key: value[-1] for key, value in parse_qs((await request.body()).decode()).items()}


def _no_api(path: str) -> Refused:
    return Refused(404, "NoApiError", f"API {path} is not found.")
