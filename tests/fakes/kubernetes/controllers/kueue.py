"""Kueue 0.19 for Jobs, TFJobs and PyTorchJobs: its webhook suspends jobs with a queue, and its reconciler keeps a
Workload for each.

Tests take the scheduler's part: `admit`, `hold`, `evict` and `deactivate`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from tests.fakes.kubernetes import patches
from tests.fakes.kubernetes.controllers.loop import Controller, reference
from tests.fakes.kubernetes.defaults import now
from tests.fakes.kubernetes.kinds import DEFINITIONS, JOBS, Kind
from tests.fakes.kubernetes.patches import copied
from tests.fakes.kubernetes.store import Change, Object

if TYPE_CHECKING:
    from tests.fakes.kubernetes.cluster import Cluster
    from tests.fakes.kubernetes.verbs import Verbs

GROUP = "kueue.x-k8s.io"
QUEUE, JOB_UID = f"{GROUP}/queue-name", f"{GROUP}/job-uid"
#: Kind of jobs → its API version.
QUEUED_KINDS = {"Job": "batch/v1", "TFJob": "kubeflow.org/v1", "PyTorchJob": "kubeflow.org/v1"}
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_OVER = ("Complete", "Succeeded", "Failed")


def install(verbs: Verbs, version: str) -> None:
    """Create Kueue's kinds, and start its webhook."""
    for kind, plural in (("Workload", "workloads"), ("LocalQueue", "localqueues")):
        verbs.create(DEFINITIONS, "", _definition(kind, plural, version))
    verbs.webhooks.mutators.append(_held_back)


def _held_back(kind: Kind, obj: Object) -> Object:
    """The webhook: a new job with a queue is suspended."""
    is_queued = kind.kind in QUEUED_KINDS and QUEUE in (obj["metadata"].get("labels") or {})
    return _with_suspension(obj, True) if is_queued else obj


def _with_suspension(obj: Object, is_suspended: bool) -> Object:
    spec = obj["spec"]
    if obj["kind"] == "Job":
        return {**obj, "spec": {**spec, "suspend": is_suspended}}
    return {**obj, "spec": {**spec, "runPolicy": {**(spec.get("runPolicy") or {}), "suspend": is_suspended}}}


def _is_suspended(job: Object) -> bool:
    spec = job["spec"]
    return bool((spec if job["kind"] == "Job" else spec.get("runPolicy") or {}).get("suspend"))


def _is_active(job: Object) -> bool:
    status = job.get("status") or {}
    roles = (status.get("replicaStatuses") or {}).values()
    return bool(status.get("active")) or any(one.get("active") for one in roles)


class KueueController(Controller):
    """A job runs while its Workload is admitted, and is suspended otherwise."""

    def __init__(self, cluster: Cluster, kind_name: str) -> None:
        super().__init__(cluster)
        self.kind_name, self.api_version = kind_name, QUEUED_KINDS[kind_name]

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
                reason = "Failed" if ended["type"] == "Failed" else "Succeeded"
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
        elif not _is_suspended(job):
            self._suspend(job, True)

    def of(self, job: Object) -> Object | None:
        """The Workload of a job."""
        label = f"{JOB_UID}={job['metadata']['uid']}"
        return next(iter(self.verbs.all(self.workloads, job["metadata"]["namespace"], labels=label)), None)

    def _create(self, job: Object, queue: str) -> None:
        meta = job["metadata"]
        digest = hashlib.sha1(f"{meta['name']}{meta['uid']}".encode()).hexdigest()[:5]
        body = {
            "apiVersion": self.workloads.api_version,
            "kind": "Workload",
            "metadata": {
                "name": f"{self.kind_name.lower()}-{meta['name']}-{digest}",
                "labels": {JOB_UID: meta["uid"]},
                "ownerReferences": [reference(job)],
            },
            "spec": {"queueName": queue, "active": True, "podSets": _pod_sets(job)},
        }
        made = self.verbs.create(self.workloads, meta["namespace"], body)
        told = f"Created Workload: {meta['namespace']}/{made['metadata']['name']}"
        self.verbs.event(job, "CreatedWorkload", told, source=self._source)

    @property
    def _source(self) -> str:
        group = self.api_version.partition("/")[0]
        return f"{group}/{self.kind_name.lower()}-kueue-controller"

    def _stop(self, job: Object, workload: Object, evicted: dict[str, Any]) -> None:
        """Suspend the job; once it has no active pod, its quota is free again. Kueue clears the start of a Job."""
        if not _is_suspended(job):
            self._suspend(job, True)
            self.verbs.event(job, "Stopped", evicted["message"], source=self._source)
            return
        status = job.get("status") or {}
        if self.kind_name == "Job" and status.get("startTime"):
            meta = job["metadata"]
            left = {name: value for name, value in status.items() if name != "startTime"}
            self.verbs.set_status(JOBS, meta["namespace"], meta["name"], left)
        if not _is_active(job) and _true(workload, "QuotaReserved"):
            self._set(
                workload,
                ("Requeued", evicted["reason"] in ("Preempted", "NodeFailures"), evicted["reason"], evicted["message"]),
                ("QuotaReserved", False, "Pending", evicted["message"]),
                ("Admitted", False, "NoReservation", "The workload has no reservation"),
            )

    def _suspend(self, job: Object, is_suspended: bool) -> None:
        if _is_suspended(job) != is_suspended:
            meta, kind = job["metadata"], self.kind
            assert kind is not None, "its controller looks at its jobs"
            change = {"spec": _with_suspension(job, is_suspended)["spec"]}
            self.verbs.patch(kind, meta["namespace"], meta["name"], change, patches.MERGE)

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


def _pod_sets(job: Object) -> list[Object]:
    """One for a Job, and one for every role of another job."""
    spec = job["spec"]
    if job["kind"] == "Job":
        return [{"name": "main", "count": spec.get("parallelism", 1), "template": spec["template"]}]
    roles = next(value for name, value in spec.items() if name.endswith("ReplicaSpecs"))
    return [
        {"name": name.lower(), "count": one.get("replicas", 1), "template": one["template"]}
        for name, one in roles.items()
    ]


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
