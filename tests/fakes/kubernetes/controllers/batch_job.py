"""The controller of `batch/v1` Jobs, as `pkg/controller/job` of Kubernetes 1.32: pods, conditions, counts, TTL."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.controllers.loop import Controller, exit_codes, reference
from tests.fakes.kubernetes.defaults import now
from tests.fakes.kubernetes.kinds import JOBS, PODS
from tests.fakes.kubernetes.patches import copied
from tests.fakes.kubernetes.store import Object

TRACKING = "batch.kubernetes.io/job-tracking"
_SOURCE = "job-controller"
_OVER = ("Succeeded", "Failed")


@dataclass
class Sync:
    """One look at a Job: its pods, the counts of the status, and the interim condition that ends it."""

    job: Object
    status: dict[str, Any]
    pods: list[Object]
    active: list[Object] = field(default_factory=list)
    ready: int = 0
    terminating: int = 0
    #: Type, reason and message of the condition before the final one; None: the Job goes on.
    ending: tuple[str, str, str] | None = None

    def __post_init__(self) -> None:
        self.active = [pod for pod in self.pods if not _is_over(pod) and not _is_deleted(pod)]
        self.ready = sum(map(_is_ready, self.active))
        self.terminating = sum(_is_deleted(pod) and not _is_over(pod) for pod in self.pods)

    @property
    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.job["spec"]
        return found

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    def is_failed(self, pod: Object) -> bool:
        if pod["status"].get("phase") == "Failed":
            return True
        is_gone = _is_deleted(pod) and pod["status"].get("phase") != "Succeeded"
        return is_gone and self.spec.get("podReplacementPolicy") != "Failed"

    def uncounted(self, phase: str) -> list[Object]:
        """Pods with an end that the status does not count yet."""
        tracked = [pod for pod in self.pods if TRACKING in (pod["metadata"].get("finalizers") or ())]
        if phase == "Succeeded":
            return [pod for pod in tracked if pod["status"].get("phase") == "Succeeded"]
        return [pod for pod in tracked if self.is_failed(pod) and _policy(self.spec, pod)[1]]

    def set(self, kind: str, is_true: bool, reason: str, message: str) -> bool:
        """Set a condition; returns whether it changed. A missing one is not added as false."""
        held: list[dict[str, Any]] = self.status.setdefault("conditions", [])
        value = "True" if is_true else "False"
        old = next((one for one in held if one["type"] == kind), None)
        if old is None and not is_true:
            return False
        if old is not None and (old["status"], old.get("reason"), old.get("message")) == (value, reason, message):
            return False
        told = {"type": kind, "status": value, "reason": reason, "message": message}
        held[:] = [one for one in held if one["type"] != kind]
        held.append({**told, "lastProbeTime": now(), "lastTransitionTime": now()})
        return True

    def true(self, kind: str) -> dict[str, Any] | None:
        held = self.status.get("conditions") or ()
        return next((one for one in held if one["type"] == kind and one["status"] == "True"), None)


class BatchJobController(Controller):
    """A Job is its pods, each counted once when it ends: a finalizer keeps it until then."""

    api_version, kind_name = "batch/v1", "Job"

    def gone(self, namespace: str, name: str) -> None:
        """Release the pods of a deleted Job."""
        for pod in self.verbs.all(PODS, namespace):
            if self.owner(pod) == name:
                self._release(pod)

    def look(self, job: Object) -> None:
        sync = Sync(job, copied(job.get("status") or {}), self.pods(job))
        if sync.true("Complete") or sync.true("Failed"):
            return self._after(sync)
        self._collect_unscheduled(sync)
        if not sync.status.get("startTime") and not sync.is_suspended:
            sync.status["startTime"] = now()
        sync.ending = self._ending(sync)
        created_badly = None
        if sync.ending is not None:
            self._delete(sync, sync.active)
        else:
            created_badly = self._manage(sync)
            if not sync.active and self._succeeded(sync) >= self._completions(sync):
                sync.ending = ("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
            else:
                self._note_suspension(sync)
        self._track(sync)
        if created_badly is not None:
            told = f"Error creating: {created_badly.message}"
            self.verbs.event(job, "FailedCreate", told, "Warning", _SOURCE)
            self.later(job, self.cluster.settings.back_off)

    def _collect_unscheduled(self, sync: Sync) -> None:
        """Fail deleted pods without a node, as the pod garbage collector does."""
        for at, pod in enumerate(sync.pods):
            if _is_deleted(pod) and not _is_over(pod) and not pod["spec"].get("nodeName"):
                meta, status = pod["metadata"], {**pod["status"], "phase": "Failed"}
                found = self.verbs.set_status(PODS, meta["namespace"], meta["name"], status)
                sync.pods[at] = found or pod
                sync.terminating -= 1

    def _ending(self, sync: Sync) -> tuple[str, str, str] | None:
        for kind in ("SuccessCriteriaMet", "FailureTarget"):
            if told := sync.true(kind):
                return kind, told["reason"], told["message"]
        for pod in sync.pods:
            if sync.is_failed(pod) and (message := _policy(sync.spec, pod)[0]):
                return "FailureTarget", "PodFailurePolicy", message
        if sync.status.get("failed", 0) + len(sync.uncounted("Failed")) > sync.spec["backoffLimit"]:
            return "FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline, started = sync.spec.get("activeDeadlineSeconds"), sync.status.get("startTime")
        if deadline is None or started is None or sync.is_suspended:
            return None
        if _age(started) >= deadline:
            return "FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline"
        self.later(sync.job, deadline - _age(started) + 0.01)
        return None

    def _succeeded(self, sync: Sync) -> int:
        return int(sync.status.get("succeeded", 0)) + len(sync.uncounted("Succeeded"))

    def _completions(self, sync: Sync) -> int:
        return int(sync.spec.get("completions") or 1)

    def _manage(self, sync: Sync) -> refusals.Refused | None:
        """Create missing pods, and delete those of a suspended Job; returns why a pod was refused."""
        if sync.is_suspended:
            for pod in sync.active:  # no longer tracked, so that their ends do not count
                self._release(pod)
            self._delete(sync, sync.active)
            return None
        wanted = min(self._completions(sync) - self._succeeded(sync), sync.spec["parallelism"])
        waiting = sync.terminating if sync.spec.get("podReplacementPolicy") == "Failed" else 0
        missing = wanted - waiting - len(sync.active)
        if missing > 0 and (wait_s := self._back_off(sync)) > 0:
            self.later(sync.job, wait_s)
            return None
        for _ in range(missing):
            try:
                sync.active.append(self._create(sync.job))
            except refusals.Refused as refused:
                return refused
        return None

    def _back_off(self, sync: Sync) -> float:
        """Seconds until a failed pod may be replaced."""
        failed = [pod for pod in sync.pods if sync.is_failed(pod)]
        if not failed:
            return 0.0
        ends = [at for pod in failed for at in _ends(pod)] or [pod["metadata"]["creationTimestamp"] for pod in failed]
        return float(self.cluster.settings.back_off * min(2 ** (len(failed) - 1), 60) - _age(max(ends)))

    def _create(self, job: Object) -> Object:
        template, namespace = copied(job["spec"]["template"]), job["metadata"]["namespace"]
        metadata = template.get("metadata") or {}
        kept = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
        own = {**kept, "generateName": f"{job['metadata']['name']}-", "ownerReferences": [reference(job)]}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**own, "finalizers": [TRACKING]},
            "spec": template["spec"],
        }
        made = self.verbs.create(PODS, namespace, body)
        self.verbs.event(job, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}", source=_SOURCE)
        return made

    def _delete(self, sync: Sync, pods: list[Object]) -> None:
        for pod in pods:
            if self.verbs.find(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"]) is not None:
                _, is_gone = self.verbs.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
                sync.terminating += not is_gone
                self.verbs.event(
                    sync.job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}", source=_SOURCE
                )
        sync.active, sync.ready = [], 0

    def _note_suspension(self, sync: Sync) -> None:
        if sync.is_suspended:
            if sync.set("Suspended", True, "JobSuspended", "Job suspended"):
                self.verbs.event(sync.job, "Suspended", "Job suspended", source=_SOURCE)
        elif sync.set("Suspended", False, "JobResumed", "Job resumed"):
            self.verbs.event(sync.job, "Resumed", "Job resumed", source=_SOURCE)
            sync.status["startTime"] = now()

    def _track(self, sync: Sync) -> None:
        """Write the interim condition, release the ended pods and count them, and write the final condition."""
        status = sync.status
        status.update(active=len(sync.active), ready=sync.ready, terminating=sync.terminating)
        status["uncountedTerminatedPods"] = {}
        if sync.ending is not None:
            sync.set(sync.ending[0], True, *sync.ending[1:])
            self._write(sync)
        succeeded, failed = sync.uncounted("Succeeded"), sync.uncounted("Failed")
        if sync.ending is not None and sync.ending[0] == "FailureTarget":
            failed += [pod for pod in sync.pods if _is_tracked(pod) and not _is_over(pod) and pod not in failed]
        for name, ended in (("succeeded", succeeded), ("failed", failed)):
            if ended:
                status[name] = status.get(name, 0) + len(ended)
        for pod in sync.pods:
            if sync.ending is not None or pod["status"].get("phase") == "Succeeded" or sync.is_failed(pod):
                self._release(pod)
        if sync.ending is not None and sync.terminating == 0:
            self._finish(sync, *sync.ending)
        self._write(sync)

    def _finish(self, sync: Sync, interim: str, reason: str, message: str) -> None:
        if interim == "SuccessCriteriaMet":
            sync.set("Complete", True, reason, message)
            sync.status["completionTime"] = now()
            self.verbs.event(sync.job, "Completed", "Job completed", source=_SOURCE)
        else:
            sync.set("Failed", True, reason, message)
            self.verbs.event(sync.job, reason, message, "Warning", _SOURCE)

    def _after(self, sync: Sync) -> None:
        """Release late pods, and delete the Job after its TTL."""
        for pod in sync.pods:
            self._release(pod)
        ttl, told = sync.spec.get("ttlSecondsAfterFinished"), sync.true("Complete") or sync.true("Failed")
        if ttl is None or told is None:
            return
        meta, left_s = sync.job["metadata"], ttl - _age(told["lastTransitionTime"])
        if left_s <= 0:
            self.verbs.delete(JOBS, meta["namespace"], meta["name"], {"propagationPolicy": "Foreground"})
        else:
            self.later(sync.job, max(left_s, 0.05))

    def _release(self, pod: Object) -> None:
        """Remove the finalizer, and with it a pod that its node has ended."""
        meta = pod["metadata"]
        current = self.verbs.find(PODS, meta["namespace"], meta["name"])
        if current is None or current["metadata"]["uid"] != meta["uid"] or not _is_tracked(current):
            return
        left = [one for one in current["metadata"]["finalizers"] if one != TRACKING]
        metadata = {name: value for name, value in current["metadata"].items() if name != "finalizers"}
        metadata |= {"finalizers": left} if left else {}
        address = (meta["namespace"], meta["name"])
        if _is_deleted(current) and not left and not metadata.get("deletionGracePeriodSeconds"):
            self.verbs.remove_now(PODS, *address)
        else:
            self.verbs.store.put(PODS.key, address, {**current, "metadata": metadata})

    def _write(self, sync: Sync) -> None:
        meta = sync.job["metadata"]
        current = self.verbs.find(JOBS, meta["namespace"], meta["name"])
        if current is not None and current["metadata"]["uid"] == meta["uid"] and sync.status != current.get("status"):
            self.verbs.set_status(JOBS, meta["namespace"], meta["name"], copied(sync.status))


def _policy(spec: Object, pod: Object) -> tuple[str, bool]:
    """By the Job's podFailurePolicy: the message with which a failed pod fails the Job, and whether it counts."""
    meta = pod["metadata"]
    where = f"{meta['namespace']}/{meta['name']}"
    for at, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        matched = _matched(rule, pod, where)
        if not matched:
            continue
        if rule["action"] == "FailJob":
            return f"{matched} matching FailJob rule at index {at}", True
        return "", rule["action"] != "Ignore"
    return "", True


def _matched(rule: Object, pod: Object, where: str) -> str:
    """The beginning of the sentence about a rule that matches a pod; empty: it does not match."""
    for wanted in rule.get("onPodConditions") or ():
        for one in pod["status"].get("conditions") or ():
            if (one["type"], one["status"]) == (wanted["type"], wanted.get("status", "True")):
                return f"Pod {where} has condition {one['type']}"
    codes = rule.get("onExitCodes")
    for name, code in exit_codes(pod).items() if codes else ():
        is_in = code in codes["values"]
        if code and is_in == (codes["operator"] == "In") and codes.get("containerName", name) == name:
            return f"Container {name} for pod {where} failed with exit code {code}"
    return ""


def _is_over(pod: Object) -> bool:
    return pod["status"].get("phase") in _OVER


def _is_deleted(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_tracked(pod: Object) -> bool:
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def _is_ready(pod: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())


def _ends(pod: Object) -> list[str]:
    told = pod["status"].get("containerStatuses") or []
    return [one["state"]["terminated"]["finishedAt"] for one in told if "terminated" in one["state"]]


def _age(moment: str) -> float:
    then = datetime.datetime.fromisoformat(moment.replace("Z", "+00:00"))
    return (datetime.datetime.now(datetime.UTC) - then).total_seconds()
