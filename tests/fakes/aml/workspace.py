"""The workspace: its Resource Manager calls, and the progress of jobs."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.fakes.aml import jobs as records
from tests.fakes.aml.answers import Answer, Lost, arm_error, user_error
from tests.fakes.aml.assets import NAME, Assets
from tests.fakes.aml.blobs import Blobs
from tests.fakes.aml.faults import Faults
from tests.fakes.aml.jobs import ENDED, Jobs, Json
from tests.fakes.aml.limits import Limits
from tests.fakes.aml.nodes import Nodes

__all__ = ["CONTAINER", "ENDED", "Faults", "Lost", "Workspace"]
CONTAINER = "azureml-blobstore"
_STORE = "workspaceblobstore"


class Workspace:
    """`resource`: its id; `computes`: names of clusters; `image`: environment variables, see `nodes`."""

    def __init__(
        self,
        folder: Path,
        resource: str,
        *,
        computes: tuple[str, ...] = ("gpu-cluster",),
        now_s: Callable[[], float] = time.time,
        image: Mapping[str, str] | None = None,
    ) -> None:
        self.resource, self.computes, self.now_s = resource, computes, now_s
        self.address = ""
        #: Access to its datastores: ``AccessKey``, ``Identity`` or ``UserDelegationSAS``.
        self.auth_mode = "AccessKey"
        self.faults, self.limits = Faults(), Limits()
        self.containers = folder / "storage"
        self.blobs = Blobs(self.containers / CONTAINER)
        self.assets = Assets(folder / "assets", self.containers, resource)
        self.jobs = Jobs(folder / "jobs")
        self.nodes = Nodes(folder / "nodes", self.containers / CONTAINER, image or {})
        #: Method, path and time of every call.
        self.calls: list[tuple[str, str]] = []
        self.times: list[float] = []
        #: Calls that exceeded the limits of Resource Manager.
        self.refused = 0
        #: Kind of assets → barrier at which calls that start an upload wait for each other, to run concurrently.
        self.meetings: dict[str, threading.Barrier] = {}
        self.lock = threading.RLock()

    # Calls

    def handle(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Answer:
        """Answer a call. `path`: below the workspace's id."""
        if method == "POST" and path.endswith("/startPendingUpload"):
            self._meet(path.partition("/")[0])
        with self.lock:
            self.calls.append((method, path))
            self.times.append(self.now_s())
            self.advance()
            self._control_flow(method)
            if not re.fullmatch(r"\d{4}-\d\d-\d\d(-preview)?", query.get("api-version", "")):
                raise arm_error(400, "MissingApiVersionParameter", "The api-version query parameter is required.")
            for wanted, pattern, call in _ROUTES:
                found = re.fullmatch(pattern, path)
                if method == wanted and found:
                    return call(self, *found.groups(), query, body)
            raise arm_error(404, "InvalidResourceType", f"The resource type of {path} could not be found.")

    def _meet(self, kind: str) -> None:
        with suppress(threading.BrokenBarrierError):
            if kind in self.meetings:
                self.meetings[kind].wait()

    def _control_flow(self, method: str) -> None:
        is_within = self.limits.allow(method, self.now_s())
        self.refused += not is_within
        if is_within and not self.faults.throttled:
            return
        self.faults.throttled = max(0, self.faults.throttled - 1)
        wait = {"Retry_After": str(self.faults.retry_after_s)}
        raise arm_error(429, "TooManyRequests", "Too many requests were received.", **wait)

    def _get_workspace(self, _query: Mapping[str, str], _body: Any) -> Answer:
        properties = {"systemDatastoresAuthMode": self.auth_mode, "provisioningState": "Succeeded"}
        return Answer.of({"id": self.resource, "name": self.resource.rsplit("/")[-1], "properties": properties})

    def _get_compute(self, name: str, _query: Mapping[str, str], _body: Any) -> Answer:
        if name not in self.computes:
            raise arm_error(404, "ResourceNotFound", f"The compute {name} was not found.")
        properties = {"computeType": "AmlCompute", "provisioningState": "Succeeded"}
        return Answer.of({"id": f"{self.resource}/computes/{name}", "name": name, "properties": properties})

    def _get_store(self, name: str, _query: Mapping[str, str], _body: Any) -> Answer:
        if name != _STORE:
            raise user_error(f"The datastore {name} was not found.", "NotFound", status=404)
        return Answer.of(self._store())

    def _list_stores(self, _query: Mapping[str, str], _body: Any) -> Answer:
        return Answer.of({"value": [self._store()]})

    def _store(self) -> Json:
        kind = "AccountKey" if self.auth_mode == "AccessKey" else "None"
        properties = {
            "datastoreType": "AzureBlob",
            "accountName": "w1storage",
            "containerName": CONTAINER,
            "isDefault": True,
            "endpoint": "core.windows.net",
            "protocol": "https",
            "credentials": {"credentialsType": kind},
        }
        return {"id": f"{self.resource}/datastores/{_STORE}", "name": _STORE, "properties": properties}

    def _get_asset(self, kind: str, name: str, version: str, _query: Mapping[str, str], _body: Any) -> Answer:
        return self.assets.get(f"{kind}/{name}/versions/{version}")

    def _list_versions(self, kind: str, name: str, query: Mapping[str, str], _body: Any) -> Answer:
        return self.assets.versions(kind, name, query)

    def _put_asset(self, kind: str, name: str, version: str, _query: Mapping[str, str], body: Any) -> Answer:
        if not NAME.fullmatch(name) or not NAME.fullmatch(version):
            raise user_error(f"{name}:{version} is not a name and version of an asset.", "BadArgument")
        return self.assets.put(f"{kind}/{name}/versions/{version}", body)

    def _start_upload(self, _name: str, _version: str, _query: Mapping[str, str], body: Any) -> Answer:
        return self.assets.start_upload(body, self.address)

    def _list_jobs(self, query: Mapping[str, str], _body: Any) -> Answer:
        names, start = list(records.listed(self.jobs, query)), int(query.get("$skip") or 0)
        end = start + min(self.faults.page_limit, int(query.get("$top") or self.faults.page_limit))
        told: Json = {"value": [self._shown(name) for name in names[start:end]]}
        if end < len(names):
            same = "&".join(f"{name}={value}" for name, value in query.items() if name != "$skip")
            told["nextLink"] = f"{self.address}{self.resource}/jobs?{same}&$skip={end}"
        return Answer.of(told)

    def _get_job(self, name: str, _query: Mapping[str, str], _body: Any) -> Answer:
        self._find(name)
        return Answer.of(self._shown(name))

    def _put_job(self, name: str, _query: Mapping[str, str], body: Any) -> Answer:
        wanted, known = records.check(name, body), self.jobs.get(name)
        if known is not None:
            records.check_unchanged(known["properties"], wanted)
            known["properties"] = wanted
        else:
            self._check_refers(wanted)
            now_s = self.now_s()
            self.jobs[name] = {
                "properties": wanted,
                "status": "Starting",
                "is_started": False,
                "is_held": self.faults.hold,
                "created_s": now_s,
                "started_s": None,
                "ended_s": None,
                "cancelled_s": None,
            }
            self.advance()
        self.jobs.save(name)
        if self.faults.lost_puts:
            self.faults.lost_puts -= 1
            raise Lost
        return Answer.of(self._shown(name), 201 if known is None else 200)

    def _check_refers(self, properties: Json) -> None:
        """Check that everything a new job refers to exists."""
        compute = str(properties.get("computeId") or "")
        if compute.removeprefix(f"{self.resource}/computes/") not in self.computes:
            raise user_error(f"The specified compute target {compute} was not found.", "NotFound")
        self.assets.check_environment(properties["environmentId"])
        if properties.get("codeId"):
            self.assets.code_folder(properties["codeId"])

    def _cancel(self, name: str, _query: Mapping[str, str], _body: Any) -> Answer:
        self._find(name)
        self.stop(name)
        location = f"{self.address}{self.resource}/jobs/{name}/operationResults/cancel?api-version=2025-12-01"
        return Answer(status=202, headers={"Location": location, "Retry-After": "1"})

    def _delete_job(self, name: str, _query: Mapping[str, str], _body: Any) -> Answer:
        if self._find(name)["status"] not in ENDED:
            raise user_error(f"The job {name} has not ended.", "BadArgument")
        self.jobs.remove(name)
        return Answer(status=202, headers={"Retry-After": "1"})

    def _find(self, name: str) -> Json:
        if name not in self.jobs:
            raise user_error(f"The job {name} was not found.", "NotFound", status=404)
        return self.jobs[name]

    def _shown(self, name: str) -> Json:
        job = self.jobs[name]
        status = self.faults.statuses.get(name, job["status"])
        page = f"https://ml.azure.com/runs/{name}?wsid={self.resource}"
        services = {"Studio": {"jobServiceType": "Studio", "endpoint": page}}
        properties = {**job["properties"], "status": status, "services": services}
        type = "Microsoft.MachineLearningServices/workspaces/jobs"
        return {"id": f"{self.resource}/jobs/{name}", "name": name, "type": type, "properties": properties}

    # Time

    def advance(self) -> None:
        """Advance all jobs."""
        with self.lock:
            self.nodes.sync()
            for name, job in list(self.jobs.items()):
                before = job["status"]
                if before not in ENDED and before != "Paused":
                    self._advance(name, job)
                if job["status"] != before:
                    self.jobs.save(name)

    def _advance(self, name: str, job: Json) -> None:
        if self.faults.pretend_s is not None and not job["is_started"]:
            self._pretend(job, self.faults.pretend_s)
        elif job["status"] == "Starting":
            job["status"] = "Preparing"
        elif job["status"] == "Preparing":
            job["status"] = "Queued"
        elif job["status"] == "Queued" and not job["is_held"]:
            self._start(name, job)
        elif job["is_started"]:
            self._follow(name, job)

    def _pretend(self, job: Json, length_s: float) -> None:
        if job["is_held"]:
            job["status"] = "Queued"
            return
        job["started_s"] = job["started_s"] or self.now_s()
        is_over = self.now_s() - job["started_s"] >= length_s
        job["status"] = "Completed" if is_over else job["status"] if job["cancelled_s"] else "Running"
        job["ended_s"] = job["started_s"] + length_s if is_over else None

    def _start(self, name: str, job: Json) -> None:
        properties = job["properties"]
        if self.auth_mode == "Identity" and not properties.get("identity"):
            self._end(job, "Failed")  # its outputs cannot be mounted, so its command never runs
            return
        code = self.assets.code_folder(properties["codeId"]) if properties.get("codeId") else None
        self.nodes.start(name, properties, code)
        job.update(status="Running", is_started=True, started_s=self.now_s())

    def _follow(self, name: str, job: Json) -> None:
        code = self.nodes.exit_code(name)
        if code is None:
            if job["cancelled_s"] is not None:
                self.nodes.insist(name, self.now_s() - job["cancelled_s"])
        elif job["status"] == "Finalizing":
            self._end(job, "Completed" if code == 0 else "Failed")
        elif job["cancelled_s"] is not None:
            self.nodes.unmount(name)
            self._end(job, "Canceled")
        else:
            self.nodes.unmount(name)
            job["status"] = "Finalizing"

    def _end(self, job: Json, status: str) -> None:
        job["status"], job["ended_s"] = status, self.now_s()

    # Used by tests

    def stop(self, name: str) -> None:
        """Cancel a job, as its page or a call does."""
        with self.lock:
            job = self.jobs[name]
            if job["status"] in ENDED or job.get("cancelled_s") is not None:
                return
            job["cancelled_s"] = self.now_s()
            if not job["is_started"]:
                self._end(job, "Canceled")
            elif job["status"] == "Running":
                job["status"] = "CancelRequested"
                self.nodes.terminate(name)
            self.jobs.save(name)

    def release(self, name: str) -> None:
        with self.lock:
            self.jobs[name]["is_held"] = False
            self.advance()

    def vanish(self, name: str) -> None:
        """Remove a job without a trace."""
        with self.lock:
            self.nodes.destroy(name)
            self.jobs.remove(name)

    def destroy_all(self) -> None:
        with self.lock:
            for name in self.jobs:
                self.nodes.destroy(name)

    def log(self, name: str) -> str:
        """Output of its container."""
        return self.nodes.log(name)


_ASSET = "(codes|environments)/([^/]+)/versions/([^/]+)"
_ROUTES: tuple[tuple[str, str, Callable[..., Answer]], ...] = (
    ("GET", "", Workspace._get_workspace),
    ("GET", "computes/([^/]+)", Workspace._get_compute),
    ("GET", "datastores", Workspace._list_stores),
    ("GET", "datastores/([^/]+)", Workspace._get_store),
    ("GET", _ASSET, Workspace._get_asset),
    ("GET", "(codes|environments)/([^/]+)/versions", Workspace._list_versions),
    ("PUT", _ASSET, Workspace._put_asset),
    ("POST", "codes/([^/]+)/versions/([^/]+)/startPendingUpload", Workspace._start_upload),
    ("GET", "jobs", Workspace._list_jobs),
    ("GET", "jobs/([^/]+)", Workspace._get_job),
    ("PUT", "jobs/([^/]+)", Workspace._put_job),
    ("POST", "jobs/([^/]+)/cancel", Workspace._cancel),
    ("DELETE", "jobs/([^/]+)", Workspace._delete_job),
)
