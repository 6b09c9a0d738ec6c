"""The loop of a controller: processes each changed object until nothing is left to do."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.kinds import CONFIG_MAPS, PODS, Kind
from tests.fakes.kubernetes.store import Change, Object

if TYPE_CHECKING:
    from tests.fakes.kubernetes.cluster import Cluster

log = logging.getLogger(__name__)


class Controller:
    """Calls `look` for each changed object of a kind, and for each object with a changed pod."""

    api_version = ""
    kind_name = ""
    #: Whether `look` is also called for objects that are being deleted.
    sees_deleted = False

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.verbs = cluster, cluster.verbs
        self._due: dict[tuple[str, str], None] = {}
        self._wake = asyncio.Event()
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}
        #: If set, the controller is down and does nothing.
        self.paused = False

    @property
    def kind(self) -> Kind | None:
        return self.verbs.kinds.by_name(self.api_version, self.kind_name)

    def look(self, job: Object) -> None:
        """Take the next step for one object."""
        raise NotImplementedError

    def gone(self, namespace: str, name: str) -> None:
        """Called for an object that is deleted, or being deleted."""

    def owner(self, obj: Object) -> str | None:
        """The name of the job that owns another object."""
        for reference in obj["metadata"].get("ownerReferences") or []:
            if reference["kind"] == self.kind_name and reference["apiVersion"] == self.api_version:
                return str(reference["name"])
        return None

    async def run(self) -> None:
        stop = self.verbs.store.listen(self._heard)
        kind = self.kind
        for obj in self.verbs.store.all(kind.key) if kind else ():
            self.enqueue(obj["metadata"]["namespace"], obj["metadata"]["name"])
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(0)
                self._work()
        finally:
            stop()

    def enqueue(self, namespace: str, name: str) -> None:
        self._due[namespace, name] = None
        self._wake.set()

    def later(self, job: Object, seconds: float) -> None:
        """Look again at this time."""
        self.enqueue_later(job["metadata"]["namespace"], job["metadata"]["name"], seconds)

    def enqueue_later(self, namespace: str, name: str, seconds: float) -> None:
        """Look at an object at this time, or at the earlier one that is already set."""
        loop, address = asyncio.get_running_loop(), (namespace, name)
        if (old := self._timers.get(address)) is not None:
            if old.when() <= loop.time() + seconds:
                return
            old.cancel()
        self._timers[address] = loop.call_later(seconds, self._is_due, address)

    def _is_due(self, address: tuple[str, str]) -> None:
        del self._timers[address]
        self.enqueue(*address)

    def _work(self) -> None:
        self._wake.clear()
        if self.paused:
            return
        due, self._due = self._due, {}
        kind = self.kind
        for namespace, name in due if kind else ():
            job = self.verbs.find(kind, namespace, name) if kind else None
            if job is None or ("deletionTimestamp" in job["metadata"] and not self.sees_deleted):
                self.gone(namespace, name)
                continue
            try:
                self.look(job)
            except refusals.Refused as refused:
                self.refused(job, refused)

    def refused(self, job: Object, refused: refusals.Refused) -> None:
        """Record that the server refused a request of the controller."""
        if refused.code == 409:
            self.enqueue(job["metadata"]["namespace"], job["metadata"]["name"])
        else:
            self.verbs.event(job, "FailedCreatePod", f"Error creating: {refused}", "Warning", self.kind_name.lower())

    def _heard(self, change: Change) -> None:
        metadata = change.last["metadata"]
        kind = self.kind
        if kind is not None and change.key == kind.key:
            self.enqueue(metadata["namespace"], metadata["name"])
        elif change.key in (PODS.key, CONFIG_MAPS.key) and (name := self.owner(change.last)):
            self.enqueue(metadata["namespace"], name)

    def resume(self) -> None:
        self.paused = False
        self._wake.set()

    def pods(self, job: Object) -> list[Object]:
        """The pods that it controls."""
        uid = job["metadata"]["uid"]
        return [
            pod
            for pod in self.verbs.store.all(PODS.key, job["metadata"]["namespace"])
            if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences") or [])
        ]


def reference(owner: Object) -> Object:
    """Owner reference to the controlling object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def exit_codes(pod: Object) -> dict[str, int]:
    """Exit codes of ended containers."""
    told = (pod.get("status") or {}).get("containerStatuses") or []
    return {each["name"]: each["state"]["terminated"]["exitCode"] for each in told if "terminated" in each["state"]}
