"""An API server in memory, in virtual time, and what it does wrong: each kind of call, for a while."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.kubernetes.api.client import Object, Refusal

GROUP, VERSION = "kubeflow.org", "v1"
#: Seconds after which a job's pod runs, and after which it has ended.
STARTS_S, ENDS_S = 20.0, 200.0
#: What a fault may be: a status, a watch that ends at once, a list without us.
CLOSED, WITHOUT_US = "closed", "without us"
_REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired"}
_WATCH_S = 300.0


@dataclass(frozen=True)
class Fault:
    """What a kind of call meets from one moment of the loop to another."""

    #: "list tfjobs", "watch pods", "POST secrets", …: a regular expression.
    call: str
    what: int | str
    begin_s: float
    end_s: float


class ApiServer:
    """Also the client of it, as `client.connect` makes one."""

    host = "https://cluster"
    fingerprint = "the only one"

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self.faults = list(faults)
        self.objects: dict[tuple[str, str], Object] = {}
        self.calls: list[tuple[float, str]] = []
        #: How often a job was made.
        self.made = 0
        self._version = 1
        self._news: list[Object] = []
        self._changed = asyncio.Condition()
        self._lives: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """One client of several."""

    def end(self) -> None:
        for life in self._lives:
            life.cancel()

    # Calls

    async def call(self, method: str, path: str, *, query: Any = (), body: Any = None, **_: Any) -> Object:
        await asyncio.sleep(0.005)
        plural, name = _parts(path)
        verb = "list" if method == "GET" and not name and plural in _KINDS else method
        fault = self._meet(f"{verb} {plural}")
        if plural == "selfsubjectaccessreviews":
            return {"status": {"allowed": True}}
        if plural not in _KINDS:
            return _discovery(path)
        if "dryRun" in dict(query):
            return dict(body)
        if verb == "list":
            return self._list(plural, is_without_us=fault == WITHOUT_US)
        return await self._one(method, plural, name, body)

    async def _one(self, method: str, plural: str, name: str, body: Any) -> Object:
        if method == "POST":
            name = body["metadata"]["name"]
            if (plural, name) in self.objects:
                raise Refusal(status=409, reason="AlreadyExists", message=f"{name} already exists")
            if plural == "tfjobs":
                self.made += 1
                self._live(name)
            return await self._put(plural, {**body, "metadata": {**body["metadata"], "uid": f"{plural}-{name}"}})
        if (plural, name) not in self.objects:
            raise Refusal(status=404, reason="NotFound", message=f"{name} not found")
        found = self.objects[plural, name]
        if method != "PATCH":
            return found
        return await self._put(plural, {**found, **body, "metadata": {**found["metadata"], **body["metadata"]}})

    @contextlib.asynccontextmanager
    async def lines(self, path: str, query: Any, limit_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        await asyncio.sleep(0.005)
        plural, _ = _parts(path)
        fault = self._meet(f"watch {plural}")
        since = int(dict(query)["resourceVersion"])
        yield self._nothing() if fault == CLOSED else self._watch(plural, since)

    async def _nothing(self) -> AsyncIterator[bytes]:
        for line in ():
            yield line

    async def _watch(self, plural: str, since: int) -> AsyncIterator[bytes]:
        until_s = asyncio.get_running_loop().time() + _WATCH_S
        while asyncio.get_running_loop().time() < until_s:
            if self._meet(f"watch {plural}", is_open=True) == CLOSED:
                return
            for event in [one for one in self._news if one["plural"] == plural and one["version"] > since]:
                since = event["version"]
                yield json.dumps({"type": event["type"], "object": event["object"]}).encode()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10), self._changed:
                    await self._changed.wait()

    def _meet(self, call: str, *, is_open: bool = False) -> str:
        """The fault of a call, unless it is a refusal. Raises Refusal and PlatformUnavailable."""
        now_s = asyncio.get_running_loop().time()
        if not is_open:
            self.calls.append((now_s, call))
        for fault in self.faults:
            if fault.begin_s <= now_s < fault.end_s and re.fullmatch(fault.call, call):
                if isinstance(fault.what, str):
                    return fault.what
                if not is_open:
                    self._refuse(fault.what)
        return ""

    def _refuse(self, status: int) -> None:
        if status == 0:
            raise PlatformUnavailable(f"{self.host} does not answer")
        reason = _REASONS.get(status, "InternalError")
        raise Refusal(status=status, reason=reason, message=f"told to answer {status}")

    # Objects

    def _list(self, plural: str, *, is_without_us: bool) -> Object:
        found = [] if is_without_us else [one for (kind, _), one in self.objects.items() if kind == plural]
        return {"items": found, "metadata": {"resourceVersion": str(self._version)}}

    async def _put(self, plural: str, body: Object) -> Object:
        self._version += 1
        name = body["metadata"]["name"]
        found = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}
        kind = "MODIFIED" if (plural, name) in self.objects else "ADDED"
        self.objects[plural, name] = found
        self._news.append({"plural": plural, "version": self._version, "type": kind, "object": found})
        async with self._changed:
            self._changed.notify_all()
        return found

    # A job's life

    def _live(self, name: str) -> None:
        life = asyncio.create_task(self._run(name))
        self._lives.add(life)

    async def _run(self, name: str) -> None:
        """Its pod runs, and fails by itself; only the pod shows how."""
        await asyncio.sleep(STARTS_S)
        labels = self.objects["tfjobs", name]["metadata"]["labels"]
        meta = {"name": f"{name}-worker-0", "labels": labels, "uid": f"pod-{name}"}
        await self._put("pods", {"metadata": meta, "status": {"phase": "Running"}})
        await self._say(name, "Running")
        await asyncio.sleep(ENDS_S)
        ended = {"terminated": {"exitCode": 7, "reason": "Error"}}
        told = [{"name": "tensorflow", "state": ended}]
        await self._put("pods", {"metadata": meta, "status": {"phase": "Failed", "containerStatuses": told}})
        await self._say(name, "Failed")

    async def _say(self, name: str, condition: str) -> None:
        conditions = [{"type": condition, "status": "True", "reason": condition}]
        await self._put("tfjobs", {**self.objects["tfjobs", name], "status": {"conditions": conditions}})


_KINDS = ("tfjobs", "pods", "events", "secrets", "configmaps")


def _parts(path: str) -> tuple[str, str]:
    """(plural, name) of the path of an object, or of all of a kind."""
    found = re.search(r"/namespaces/[^/]+/([a-z]+)(?:/([^/]+))?$", path)
    return (found[1], found[2] or "") if found else (path.rpartition("/")[2], "")


def _discovery(path: str) -> Object:
    versions = [{"version": VERSION}]
    return {"versions": versions, "preferredVersion": versions[0], "resources": [{"name": "tfjobs"}]}
