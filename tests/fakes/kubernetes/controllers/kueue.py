"""Kueue 0.19 for `batch/v1` Jobs: its webhook suspends jobs with a queue, and its reconciler keeps a Workload for each.

Tests take the scheduler's part: `admit`, `hold`, `evict` and `deactivate`.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tests.fakes.kubernetes import patches
from tests.fakes.kubernetes.controllers.loop import Controller, reference
from tests.fakes.kubernetes.defaults import now
from tests.fakes.kubernetes.kinds import DEFINITIONS, JOBS, Kind
from tests.fakes.kubernetes.patches import copied
from tests.fakes.kubernetes.store import Change, Object

GROUP = "kueue.x-k8s.io"
QUEUE, JOB_UID = f"{GROUP}/queue-name", f"{GROUP}/job-uid"
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_OVER = ("Complete", "Failed")


def suspended(kind: Kind, obj: Object) -> Object:
    """The webhook: a new Job with a queue is suspended."""
    if kind.key != JOBS.key or QUEUE not in (obj["metadata"].get("labels") or {}):
        return obj
    return {**obj, "spec": {**obj["spec"], "suspend": True}}


class KueueController(Controller):
    """A Job runs while its Workload is admitted, and is suspended otherwise."""

    api_version, kind_name = "batch/v1", "Job"

    def install(self, version: str) -> None:
        """Create Kueue's kinds, and start its webhook."""
        for kind, plural in (("Workload", "workloads"), ("LocalQueue", "localqueues")):
            self.verbs.create(DEFINITIONS, "", _definition(kind, plural, version))
        self.verbs.webhooks.mutators.append(suspended)

    @property
    def workloads(self) -> Kind:
        found = self.verbs.kinds.by_key(f"workloads.{GROUP}")
        assert found is not None, "installed"
        return found

    def _heard(self, change: Change) -> None:
        super()._heard(change)
        if change.key == f"workloads.{GROUP}" and (name := self.owner(change.last)):
            self.enqueue(change.last["metadata"]["namespace"], name)

    def look(self, job: Object) -> None:
        queue = (job["metadata"].get("labels") or {}).get(QUEUE)
        if queue is None:
            return
        workload = self.of(job)
        if _true(job, *_OVER):
            if workload is not None and not _true(workload, "Finished"):
                ended = _true(job, *_OVER) or {}
                reason = "Succeeded" if ended["type"] == "Complete" else "Failed"
                self._set(workload, ("Finished", True, reason, ended.get("message") or "Job finished successfully"))
            return
        if workload is None:
            self._create(job, queue)
        elif not workload["spec"].get("active", True) and not _true(workload, "Evicted"):
            self._set(workload, ("Evicted", True, "Deactivated", "The workload is deactivated"))
        elif evicted := _true(workload, "Evicted"):
            self._stop(job, workload, evicted)
        elif _true(workload, "Admitted"):
            self._suspend(job, False)
        elif not job["spec"].get("suspend"):
            self._suspend(job, True)

    def of(self, job: Object) -> Object | None:
        """The Workload of a Job."""
        label = f"{JOB_UID}={job['metadata']['uid']}"
        return next(iter(self.verbs.all(self.workloads, job["metadata"]["namespace"], labels=label)), None)

    def _create(self, job: Object, queue: str) -> None:
        meta = job["metadata"]
        digest = hashlib.sha1(f"{meta['name']}{meta['uid']}".encode()).hexdigest()[:5]
        pods = {"name": "main", "count": job["spec"].get("parallelism", 1), "template": job["spec"]["template"]}
        body = {
            "apiVersion": self.workloads.api_version,
            "kind": "Workload",
            "metadata": {
                "name": f"job-{meta['name']}-{digest}",
                "labels": {JOB_UID: meta["uid"]},
                "ownerReferences": [reference(job)],
            },
            "spec": {"queueName": queue, "active": True, "podSets": [pods]},
        }
        made = self.verbs.create(self.workloads, meta["namespace"], body)
        told = f"Created Workload: {meta['namespace']}/{made['metadata']['name']}"
        self.verbs.event(job, "CreatedWorkload", told, source="batch/job-kueue-controller")

    def _stop(self, job: Object, workload: Object, evicted: dict[str, Any]) -> None:
        """Suspend the Job and clear its start; once it has no active pod, its quota is free again."""
        if not job["spec"].get("suspend"):
            self._suspend(job, True)
            self.verbs.event(job, "Stopped", evicted["message"], source="batch/job-kueue-controller")
            return
        status = job.get("status") or {}
        if status.get("startTime"):
            meta = job["metadata"]
            self.verbs.set_status(JOBS, meta["namespace"], meta["name"], {**status, "startTime": None})
        if not status.get("active") and _true(workload, "QuotaReserved"):
            self._set(
                workload,
                ("QuotaReserved", False, "Pending", evicted["message"]),
                ("Admitted", False, "NoReservation", "The workload has no reservation"),
            )

    def _suspend(self, job: Object, is_suspended: bool) -> None:
        meta = job["metadata"]
        if bool(job["spec"].get("suspend")) != is_suspended:
            change = {"spec": {"suspend": is_suspended}}
            self.verbs.patch(JOBS, meta["namespace"], meta["name"], change, patches.MERGE)

    # the scheduler's part

    def admit(self, job: Object) -> None:
        self._set(
            self._workload(job),
            ("QuotaReserved", True, "QuotaReserved", "Quota reserved in ClusterQueue cluster-queue"),
            ("Admitted", True, "Admitted", "The workload is admitted"),
            ("Evicted", False, "QuotaReserved", "Previously: Preempted"),
        )

    def hold(self, job: Object, reason: str, message: str) -> None:
        """No quota: the reason and message of the scheduler."""
        self._set(self._workload(job), ("QuotaReserved", False, reason, message))

    def evict(self, job: Object, reason: str, message: str) -> None:
        self._set(self._workload(job), ("Evicted", True, reason, message))

    def deactivate(self, job: Object) -> None:
        meta = self._workload(job)["metadata"]
        self.verbs.patch(self.workloads, meta["namespace"], meta["name"], {"spec": {"active": False}}, patches.MERGE)

    def _workload(self, job: Object) -> Object:
        found = self.of(job)
        assert found is not None, "created"
        return found

    def _set(self, workload: Object, *conditions: tuple[str, bool, str, str]) -> None:
        status = copied(workload.get("status") or {})
        held: list[dict[str, Any]] = status.setdefault("conditions", [])
        for kind, is_true, reason, message in conditions:
            known = any(one["type"] == kind for one in held)
            if not known and kind == "Evicted" and not is_true:
                continue
            told = {"type": kind, "status": "True" if is_true else "False", "reason": reason, "message": message}
            held[:] = [one for one in held if one["type"] != kind]
            held.append({**told, "lastTransitionTime": now()})
        meta = workload["metadata"]
        self.verbs.set_status(self.workloads, meta["namespace"], meta["name"], status)


def _true(obj: Object, *kinds: str) -> dict[str, Any] | None:
    held = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in held if one["type"] in kinds and one["status"] == "True"), None)


def _definition(kind: str, plural: str, version: str) -> Object:
    schema = {"type": "object", "properties": {"spec": _ANY, "status": _ANY}}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{**served, "subresources": {"status": {}}}],
        },
    }
