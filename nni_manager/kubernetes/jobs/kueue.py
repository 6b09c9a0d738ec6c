"""Kueue, which suspends the jobs of its queues until a queue admits them: which jobs it took back, and its queues."""

from __future__ import annotations

import dataclasses
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.kubernetes.api.client import Object, Refusal
from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.api.names import KUEUE, Resource
from nni_manager.kubernetes.fields import QUEUE_LABEL
from nni_manager.platform_kit.contract import PreflightFinding, Severity

#: Versions of its API, the best first; 0.15 and newer serve the first.
_VERSIONS = ("v1beta2", "v1beta1")
#: Reasons of evictions of admitted jobs. Others also occur before a job's pods have run.
_TAKEN_BACK = ("Preempted", "ClusterQueueStopped", "LocalQueueStopped", "NodeFailures")


def is_suspended(job: Object) -> bool:
    """Whether a queue or a user holds the job: before its turn, or after its place was taken back."""
    spec = job.get("spec") or {}
    return bool(spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"))


def is_queued(job: Object) -> bool:
    """Whether a queue of Kueue decides when the job runs."""
    return QUEUE_LABEL in ((job.get("metadata") or {}).get("labels") or {})


async def find_workloads(cluster: Cluster) -> Resource | None:
    """The kind Workload in a version that the cluster serves; None: it has no Kueue."""
    group = await cluster.get(f"/apis/{KUEUE}") or {}
    served = [one["version"] for one in group.get("versions") or ()]
    version = next((one for one in _VERSIONS if one in served), None)
    return Resource(KUEUE, version, "workloads", "Workload") if version else None


def waiting(found: Observation, job: Object, workload: Object | None) -> Observation:
    """The report on a suspended job with the reason of its Workload; None: the Workload is not known yet."""
    if workload is None:
        return dataclasses.replace(found, wait=_queued(job, {}))
    if (refused := refusal(workload)) is not None:
        reason, sentence = refused
        details = {"queue": str(job["metadata"]["labels"][QUEUE_LABEL]), "reason": reason}
        never = Wait(code=WaitCode.QUOTA, sentence=sentence, details=details, is_hopeless=True)
        return dataclasses.replace(found, wait=never)
    told = _condition(workload, "QuotaReserved", "False") or _condition(workload, "Admitted", "False") or {}
    return dataclasses.replace(found, wait=_queued(job, told))


def _queued(job: Object, told: dict[str, Any]) -> Wait:
    """The wait of a job in its queue. `told`: the condition of its Workload with the reason; empty: none yet."""
    queue, reason = str(job["metadata"]["labels"][QUEUE_LABEL]), str(told.get("reason") or "")
    if not told:
        sentence = f"Kueue's queue {queue} has not admitted the job yet"
    else:
        sentence = f"Kueue's queue {queue}: {told.get('message') or reason}"
    return Wait(code=WaitCode.QUOTA, sentence=sentence, details={"queue": queue, "reason": reason})


def refusal(workload: Object) -> tuple[str, str] | None:
    """The reason why Kueue will never admit a Workload as it is, and a sentence; None: it may admit it."""
    if workload["spec"].get("active") is False:
        sentence = evicted(workload) or "The workload is deactivated"
        return "Deactivated", f"Kueue deactivated the job: {sentence}"
    told = _condition(workload, "QuotaReserved", "False") or {}
    if told.get("reason") == "ExceedsMaxQuota":
        return "ExceedsMaxQuota", f"Kueue never admits the job: {told.get('message')}"
    return None


def evicted(workload: Object) -> str:
    """Why Kueue took the place of a job; empty: it did not."""
    return str((_condition(workload, "Evicted", "True") or {}).get("message") or "")


def was_taken_back(workload: Object | None) -> bool:
    """Whether a queued job was admitted before, and its place was taken back. Its pods may have run."""
    told = _condition(workload, "Evicted", "True") if workload is not None else None
    return told is not None and told.get("reason") in _TAKEN_BACK


def _condition(workload: Object, kind: str, status: str) -> dict[str, Any] | None:
    held = (workload.get("status") or {}).get("conditions") or ()
    return next((one for one in held if (one.get("type"), one.get("status")) == (kind, status)), None)


async def queue_there(cluster: Cluster, queue: str | None) -> list[PreflightFinding]:
    """A finding if the section's queue does not exist. Raises Refusal and PlatformUnavailable."""
    if queue is None:
        return []
    if (workloads := await find_workloads(cluster)) is None:
        sentence = "the cluster has no Kueue: queueName has no effect, and jobs start at once"
        return [PreflightFinding(Severity.WARNING, "queueName", sentence, "install Kueue, or remove queueName")]
    try:
        found = await cluster.find(dataclasses.replace(workloads, plural="localqueues", kind="LocalQueue"), queue)
    except Refusal as refusal:
        if refusal.status != 403:
            raise
        return []
    if found is not None:
        return await _rights(cluster, workloads)
    sentence = f"namespace {cluster.namespace} has no LocalQueue {queue}: jobs would wait forever"
    fix = "correct queueName; `kubectl get localqueue` lists the queues"
    return [PreflightFinding(Severity.WRONG, "queueName", sentence, fix)]


async def _rights(cluster: Cluster, workloads: Resource) -> list[PreflightFinding]:
    if await cluster.may("list", workloads) and await cluster.may("watch", workloads):
        return []
    sentence = "the account may not list and watch workloads (kueue.x-k8s.io): why Kueue holds a job is not shown"
    return [PreflightFinding(Severity.WARNING, "rights", sentence)]
