"""The workspace in Azure Resource Manager: jobs, code, environments, computes, a datastore."""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from tests.fakes import containers, contracts
from tests.fakes.aml.answers import Answer, Refused
from tests.fakes.aml.blobs import Blobs
from tests.fakes.aml.limits import Limits
from tests.fakes.containers import Mount

Json = dict[str, Any]
SCHEMA = "aml/command-job.derived.schema.json"
ENDED = ("Completed", "Failed", "Canceled")
#: What may be changed of a job.
_MUTABLE = {"description", "tags", "displayName", "properties", "isArchived"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")
CONTAINER = "azureml-blobstore"


@dataclass(kw_only=True)
class Faults:
    """How it misbehaves."""

    #: ``refuse`` (503), ``drop``, ``hang`` (no answer until it ends).
    outage: str = ""
    lost_puts: int = 0
    throttled: int = 0
    retry_after_s: int = 1
    page_limit: int = 100
    statuses: dict[str, str] = field(default_factory=dict)
    #: New jobs stay Queued until they are released.
    hold: bool = False
    #: Jobs run no commands: they are Completed after so many seconds.
    pretend_s: float | None = None


class Lost(Exception):
    """The request was carried out, and its answer does not arrive."""


class Workspace:
    """`folder`: everything it remembers; `address`: its own, once it has one. `resource`: its id.

    `now_s`: seconds of a steady clock.
    """

    def __init__(
        self, folder: Path, resource: str, *, computes: tuple[str, ...] = ("gpu-cluster",),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.resource, self.address, self.computes = resource, "", computes
        self.faults = Faults()
        self.blobs = Blobs(folder / "blobs")
        self.calls: list[tuple[str, str]] = []
        #: When each came, by a steady clock.
        self.times: list[float] = []
        self.limits = Limits()
        #: So many were asked too often.
        self.refused = 0
        self._folder, self._now_s = folder, now_s
        self.jobs: dict[str, Json] = _kept(folder / "jobs")
        self.assets: dict[str, Json] = _kept(folder / "assets")
        self.lock = threading.RLock()

    def handle(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Answer:
        """`path`: below the workspace. Raises Refused and Lost."""
        with self.lock:
            self.calls.append((method, path))
            self.times.append(self._now_s())
            if query.get("api-version") != "2025-12-01":
                raise Refused(400, "NoRegisteredProviderFound", "There is no such api-version.")
            self._control_flow(method)
            self.advance()
            for verb, pattern, answer in self._routes():
                if verb == method and (found := re.fullmatch(pattern, path)):
                    return answer(*found.groups(), **({"body": body} if verb != "GET" else {"query": query}))
            raise Refused(404, "NotFound", f"There is no {method} {path}.")

    def _control_flow(self, method: str) -> None:
        if not self.limits.allow(method, self._now_s()) or self.faults.throttled > 0:
            self.faults.throttled = max(0, self.faults.throttled - 1)
            self.refused += 1
            raise Refused(429, "TooManyRequests", "Too many requests.", Retry_After=str(self.faults.retry_after_s))

    def _routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [
            ("GET", "", self._get_workspace), ("GET", "jobs", self._list_jobs), ("GET", "jobs/([^/]+)", self._get_job),
            ("PUT", "jobs/([^/]+)", self._put_job), ("POST", "jobs/([^/]+)/cancel", self._cancel),
            ("GET", "((?:codes|environments)/[^/]+/versions/[^/]+)", self._get_asset),
            ("PUT", "((?:codes|environments)/[^/]+/versions/[^/]+)", self._put_asset),
            ("POST", "(codes/[^/]+/versions/[^/]+)/startPendingUpload", self._start_upload),
            ("GET", "computes/([^/]+)", self._get_compute), ("GET", "datastores/workspaceblobstore", self._get_store),
        ]  # fmt: skip

    # What is there

    def _get_workspace(self, *, query: Mapping[str, str]) -> Answer:
        return Answer.of({"id": self.resource, "name": self.resource.rpartition("/")[2], "properties": {}})

    def _get_compute(self, name: str, *, query: Mapping[str, str]) -> Answer:
        if name not in self.computes:
            raise Refused(404, "ResourceNotFound", f"The compute {name} was not found.")
        return Answer.of(
            {"id": f"{self.resource}/computes/{name}", "name": name, "properties": {"computeType": "AmlCompute"}}
        )

    def _get_store(self, *, query: Mapping[str, str]) -> Answer:
        told = {
            "datastoreType": "AzureBlob", "accountName": "account1", "containerName": CONTAINER,
            "endpoint": "core.windows.net", "protocol": "https",
        }  # fmt: skip
        return Answer.of({"id": f"{self.resource}/datastores/workspaceblobstore", "properties": told})

    # Code and environments

    def _get_asset(self, path: str, *, query: Mapping[str, str]) -> Answer:
        if path not in self.assets:
            raise Refused(404, "NotFound", f"{path} was not found.")
        return Answer.of(self.assets[path])

    def _put_asset(self, path: str, *, body: Any) -> Answer:
        kind = "CodeVersion" if path.startswith("codes/") else "EnvironmentVersion"
        _check(kind, body)
        is_new = path not in self.assets
        if not is_new and self.assets[path]["properties"] != body["properties"]:
            raise Refused(409, "UserError", f"{path} exists and cannot be changed.")
        self.assets[path] = {"id": f"{self.resource}/{path}", "name": path.rpartition("/")[2], **body}
        _keep(self._folder / "assets", path, self.assets[path])
        return Answer.of(self.assets[path], 201 if is_new else 200)

    def _start_upload(self, path: str, *, body: Any) -> Answer:
        _check("PendingUploadRequestDto", body)
        place = f"{self.address}/{CONTAINER}/uploads"
        answer = {
            "pendingUploadId": "1", "pendingUploadType": "TemporaryBlobReference",
            "blobReferenceForConsumption": {
                "blobUri": place, "credential": {"credentialType": "SAS", "sasUri": f"{place}?sv=2021-08-06&sig=good"},
            },
        }  # fmt: skip
        _check("PendingUploadResponseDto", answer)
        return Answer.of(answer)

    # Jobs

    def _list_jobs(self, *, query: Mapping[str, str]) -> Answer:
        names = [n for n, job in self.jobs.items() if query.get("tag") in (None, *job["properties"]["tags"])]
        start = int(query.get("$skip", 0))
        names, rest = names[start : start + self.faults.page_limit], names[start + self.faults.page_limit :]
        answer: Json = {"value": [self._shown(name) for name in names]}
        if rest:
            told = "&".join(f"{n}={v}" for n, v in query.items() if n != "$skip")
            answer["nextLink"] = f"{self.address}{self.resource}/jobs?{told}&$skip={start + self.faults.page_limit}"
        return Answer.of(answer)

    def _get_job(self, name: str, *, query: Mapping[str, str]) -> Answer:
        return Answer.of(self._shown(name))

    def _put_job(self, name: str, *, body: Any) -> Answer:
        _check("CommandJobResource", body)
        properties = body["properties"]
        is_new = name not in self.jobs
        if is_new:
            self._check_job(name, properties)
            status = "Queued" if self.faults.hold else "Starting"
            self.jobs[name] = {"properties": {"tags": {}, **properties}, "status": status, "is_started": False}
            self.advance()
        else:
            _check_unchanged(self.jobs[name]["properties"], properties)
            self.jobs[name]["properties"] |= {key: properties[key] for key in _MUTABLE & properties.keys()}
        self._save(name)
        if self.faults.lost_puts > 0:
            self.faults.lost_puts -= 1
            raise Lost
        return Answer.of(self._shown(name), 201 if is_new else 200)

    def _check_job(self, name: str, properties: Json) -> None:
        if not _NAME.fullmatch(name):
            raise Refused(400, "UserError", f"{name} is no name of a job.")
        for field_name, place in (("codeId", self.assets), ("environmentId", self.assets)):
            if str(properties.get(field_name, "")).removeprefix(f"{self.resource}/") not in place:
                raise Refused(400, "UserError", f"{field_name} {properties.get(field_name)} was not found.")
        if str(properties.get("computeId", "")).rpartition("/")[2] not in self.computes:
            raise Refused(400, "ComputeNotFound", f"Compute {properties.get('computeId')} was not found.")
        for output in (properties.get("outputs") or {}).values():
            _check("UriFolderJobOutput", output)

    def _cancel(self, name: str, *, body: Any) -> Answer:
        self._find(name)
        self.stop(name)
        place = f"{self.address}{self.resource}/jobs/{name}"
        return Answer.of({}, 202, Location=place, Retry_After="1")

    def stop(self, name: str) -> None:
        """We do, or a person in the studio."""
        job = self.jobs[name]
        if job["status"] in ENDED:
            return
        if job["is_started"] and self.faults.pretend_s is None:
            job["status"] = "CancelRequested"
            containers.terminate(self._container(name))
        else:
            job["status"] = "Canceled"
        self._save(name)

    def vanish(self, name: str) -> None:
        with self.lock:
            containers.destroy(self._container(name))
            del self.jobs[name]
            _place(self._folder / "jobs", name).unlink(missing_ok=True)

    def release(self, name: str) -> None:
        with self.lock:
            self.jobs[name]["status"] = "Starting"
            self.advance()

    def destroy_all(self) -> None:
        with self.lock:
            for name, job in self.jobs.items():
                if job["is_started"] and job["status"] not in ENDED:
                    containers.destroy(self._container(name))

    def advance(self) -> None:
        """Whatever time has brought."""
        with self.lock:
            for name, job in self.jobs.items():
                if job["status"] == "Starting":
                    job |= {"status": "Running", "is_started": True, "started_s": self._now_s()}
                    if self.faults.pretend_s is None:
                        self._start(name, job["properties"])
                    self._save(name)
                elif job["status"] in ("Running", "CancelRequested") and (ended := self._end(name, job)):
                    job |= ended
                    self._save(name)

    def _end(self, name: str, job: Json) -> Json | None:
        """How it ended, and when; None while it runs."""
        if self.faults.pretend_s is not None:
            ends_s = job["started_s"] + self.faults.pretend_s
            return {"status": "Completed", "ended_s": ends_s} if self._now_s() >= ends_s else None
        code = containers.exit_code(self._container(name))
        if code is None:
            return None
        containers.destroy(self._container(name))
        status = "Canceled" if job["status"] == "CancelRequested" else "Failed" if code else "Completed"
        return {"status": status, "ended_s": self._now_s()}

    def _save(self, name: str) -> None:
        _keep(self._folder / "jobs", name, self.jobs[name])

    def _start(self, name: str, properties: Json) -> None:
        folder, command, mounts = self._container(name), properties["command"], []
        for output_name, output in (properties.get("outputs") or {}).items():
            source = self.blobs.folder / output["uri"].partition("/paths/")[2]
            source.mkdir(parents=True, exist_ok=True)
            target = self._folder / "mounts" / name / output_name
            mounts.append(Mount(source, target))
            command = command.replace(f"${{{{outputs.{output_name}}}}}", str(target))
        code_uri = self.assets[properties["codeId"].removeprefix(f"{self.resource}/")]["properties"]["codeUri"]
        code = self.blobs.folder / code_uri.partition(f"/{CONTAINER}/")[2]
        script = f"cp -R {shlex.quote(str(code))}/. . || exit 1\n{command}"
        containers.start(folder, script, properties.get("environmentVariables") or {}, mounts)

    def log(self, name: str) -> str:
        return "".join((self._container(name) / one).read_text() for one in ("stdout", "stderr"))

    def _container(self, name: str) -> Path:
        return self._folder / "containers" / name

    def _find(self, name: str) -> Json:
        if name not in self.jobs:
            raise Refused(404, "UserError", f"Job {name} was not found.")
        return self.jobs[name]

    def _shown(self, name: str) -> Json:
        job = self._find(name)
        studio = {"jobServiceType": "Studio", "endpoint": f"https://ml.azure.com/runs/{name}?wsid={self.resource}"}
        status = self.faults.statuses.get(name, job["status"])
        properties = {**job["properties"], "status": status, "services": {"Studio": studio}}
        shown = {"id": f"{self.resource}/jobs/{name}", "name": name, "properties": properties}
        if name not in self.faults.statuses:
            _check("CommandJobResource", shown)
        return shown


def _kept(folder: Path) -> dict[str, Json]:
    return {unquote(path.name): json.loads(path.read_text()) for path in sorted(folder.glob("[!.]*"))}


def _keep(folder: Path, name: str, value: Json) -> None:
    place = _place(folder, name)
    draft = place.with_name(f".{place.name}")
    folder.mkdir(parents=True, exist_ok=True)
    draft.write_text(json.dumps(value))
    draft.replace(place)


def _place(folder: Path, name: str) -> Path:
    return folder / quote(name, safe="")


def _check(kind: str, body: Any) -> None:
    if not isinstance(body, dict):
        raise Refused(400, "ValidationError", "The body is no JSON object.")
    if fault := contracts.fault(SCHEMA, kind, body):
        raise Refused(400, "ValidationError", fault)


def _check_unchanged(before: Json, after: Json) -> None:
    for name in (before.keys() | after.keys()) - _MUTABLE:
        if before.get(name) != after.get(name):
            raise Refused(
                400, "JobPropertyImmutable", f"A job with this name already exists, and {name} cannot be changed."
            )
