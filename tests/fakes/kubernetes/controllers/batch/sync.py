"""One look at a Job: what its pods and its status say at that moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.fakes.kubernetes.controllers.batch import pods as of_pods
from tests.fakes.kubernetes.controllers.batch.back_off import Record
from tests.fakes.kubernetes.controllers.batch.failure_policy import verdict
from tests.fakes.kubernetes.store import Object

_COUNTED = ("succeeded", "failed")


@dataclass(frozen=True)
class Ending:
    """The end of a Job. The interim condition comes first, the final one when all pods are counted and gone."""

    is_success: bool
    reason: str
    message: str

    @property
    def interim(self) -> str:
        return "SuccessCriteriaMet" if self.is_success else "FailureTarget"

    @property
    def final(self) -> str:
        return "Complete" if self.is_success else "Failed"


@dataclass
class Sync:
    """The pods of a Job, its new status, and the counts that decide."""

    job: Object
    #: A copy that the controller changes and writes.
    status: dict[str, Any]
    pods: list[Object]
    record: Record
    ending: Ending | None = None
    active_pods: list[Object] = field(default_factory=list)
    active: int = 0
    ready: int = 0
    terminating: int = 0
    #: Pods that ended, those in the status and those since then.
    succeeded: int = 0
    failed: int = 0

    def __post_init__(self) -> None:
        self.active_pods = [pod for pod in self.pods if of_pods.is_active(pod)]
        self.active = len(self.active_pods)
        self.ready = sum(map(of_pods.is_ready, self.active_pods))
        self.terminating = sum(map(of_pods.is_terminating, self.pods))
        tracked = [pod for pod in self.pods if of_pods.is_tracked(pod)]
        succeeded = [pod for pod in tracked if of_pods.phase(pod) == "Succeeded" and not self._is_listed(pod)]
        failed = [pod for pod in tracked if self.is_failed(pod) and not self._is_listed(pod)]
        self.succeeded = self.status.get("succeeded", 0) + len(succeeded) + len(self.uncounted("succeeded"))
        counted = sum(verdict(self.spec, pod).is_counted for pod in failed)
        self.failed = self.status.get("failed", 0) + counted + len(self.uncounted("failed"))
        self.record = self.record.after(succeeded, failed)

    @property
    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.job["spec"]
        return found

    @property
    def address(self) -> tuple[str, str]:
        return self.job["metadata"]["namespace"], self.job["metadata"]["name"]

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def is_deleted(self) -> bool:
        return "deletionTimestamp" in self.job["metadata"]

    @property
    def waits_for_end(self) -> bool:
        """Whether only a pod with an end is replaced; otherwise a deleted one is, too."""
        return self.spec.get("podReplacementPolicy") == "Failed" or bool(self.spec.get("podFailurePolicy"))

    @property
    def wanted(self) -> int:
        """Number of pods that should be active."""
        completions, parallelism = self.spec.get("completions"), int(self.spec["parallelism"])
        if self.is_suspended:
            return 0
        if completions is None:
            return self.active if self.succeeded else parallelism
        return max(min(int(completions) - self.succeeded, parallelism), 0)

    @property
    def is_complete(self) -> bool:
        """Without a number of completions, one success is enough, once the other pods have ended."""
        completions = self.spec.get("completions")
        return self.succeeded >= (1 if completions is None else completions) and self.active == 0

    def is_failed(self, pod: Object) -> bool:
        if of_pods.phase(pod) == "Failed" or self.waits_for_end:
            return of_pods.phase(pod) == "Failed"
        return of_pods.is_deleted(pod) and of_pods.phase(pod) != "Succeeded"

    def uncounted(self, name: str) -> list[str]:
        """UIDs of ended pods whose finalizer is not yet removed: `succeeded` or `failed`."""
        found: list[str] = (self.status.get("uncountedTerminatedPods") or {}).get(name) or []
        return found

    def list_uncounted(self, name: str, pod: Object) -> None:
        if not self._is_listed(pod):
            held = self.status.setdefault("uncountedTerminatedPods", {})
            held[name] = [*self.uncounted(name), pod["metadata"]["uid"]]

    def count_released(self, tracked: set[str]) -> None:
        """Add the listed pods that have lost their finalizer to the counts."""
        held = self.status.setdefault("uncountedTerminatedPods", {})
        for name in _COUNTED:
            uids = self.uncounted(name)
            left = [uid for uid in uids if uid in tracked]
            self.put_count(name, self.status.get(name, 0) + len(uids) - len(left))
            held.pop(name, None)
            held.update({name: left} if left else {})

    def put_count(self, name: str, count: int) -> None:
        """The API leaves out these counts if they are 0."""
        self.status.pop(name, None)
        self.status.update({name: count} if count else {})

    def _is_listed(self, pod: Object) -> bool:
        return any(pod["metadata"]["uid"] in self.uncounted(name) for name in _COUNTED)
