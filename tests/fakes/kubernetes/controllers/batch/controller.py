"""The controller of Jobs: creates, counts and deletes their pods, and ends them with conditions and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.controllers.batch import conditions
from tests.fakes.kubernetes.controllers.batch import pods as of_pods
from tests.fakes.kubernetes.controllers.batch.back_off import Record, age_s
from tests.fakes.kubernetes.controllers.batch.failure_policy import verdict
from tests.fakes.kubernetes.controllers.batch.sync import Ending, Sync
from tests.fakes.kubernetes.controllers.loop import Controller
from tests.fakes.kubernetes.defaults import now
from tests.fakes.kubernetes.kinds import JOBS, PODS
from tests.fakes.kubernetes.patches import copied
from tests.fakes.kubernetes.store import Change, Object

if TYPE_CHECKING:
    from tests.fakes.kubernetes.cluster import Cluster

_COMPLETE = Ending(True, "CompletionsReached", "Reached expected number of succeeded pods")
_OVER_LIMIT = Ending(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
_TOO_LATE = Ending(False, "DeadlineExceeded", "Job was active longer than specified deadline")
_OWN = "kubernetes.io/job-controller"


class BatchJobController(Controller):
    """A Job is its pods, each counted once when it ends."""

    api_version, kind_name = "batch/v1", "Job"
    sees_deleted = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._pods = of_pods.JobPods(self.verbs)
        self._records: dict[tuple[str, str], Record] = {}
        #: Number of refused looks in a row.
        self._refusals: dict[tuple[str, str], int] = {}
        #: Pods whose Job is finished or gone.
        self._orphans: dict[tuple[str, str], None] = {}

    @property
    def _batch_s(self) -> float:
        """Delay after changes of pods and of the status; the first back-off is ten times as long."""
        return self.cluster.settings.back_off / 10

    # what wakes it

    async def run(self) -> None:
        self._note_orphans(None)
        await super().run()

    def _heard(self, change: Change) -> None:
        address = (change.last["metadata"].get("namespace", ""), change.last["metadata"]["name"])
        if change.key == JOBS.key:
            before, after = change.before or {"metadata": {}}, change.after or {"metadata": {}}
            if before["metadata"].get("generation") == after["metadata"].get("generation"):
                self.enqueue_later(*address, self._batch_s)
            else:
                self.enqueue(*address)
        elif change.key == PODS.key:
            job = self._job(change.last)
            if job is not None and not conditions.final(job.get("status") or {}):
                self.enqueue_later(address[0], job["metadata"]["name"], self._batch_s)
            elif change.after is not None and of_pods.is_tracked(change.after):
                self._orphans[address] = None
                self._wake.set()

    def _work(self) -> None:
        super()._work()
        if self.paused:
            return
        orphans, self._orphans = self._orphans, {}
        for address in orphans:
            pod = self.verbs.find(PODS, *address)
            if pod is not None and self._is_orphan(pod):
                self._pods.release(pod)

    def _job(self, pod: Object) -> Object | None:
        owner = of_pods.owner(pod)
        if owner is None or (owner["apiVersion"], owner["kind"]) != (self.api_version, self.kind_name):
            return None
        job = self.verbs.find(JOBS, pod["metadata"]["namespace"], owner["name"])
        return job if job is not None and job["metadata"]["uid"] == owner["uid"] else None

    def _is_orphan(self, pod: Object) -> bool:
        owner, job = of_pods.owner(pod), self._job(pod)
        if job is not None:
            return _is_own(job) and conditions.final(job.get("status") or {}) is not None
        return owner is None or (owner["apiVersion"], owner["kind"]) == (self.api_version, self.kind_name)

    def _note_orphans(self, namespace: str | None) -> None:
        for pod in self.verbs.store.all(PODS.key, namespace):
            if of_pods.is_tracked(pod):
                self._orphans[pod["metadata"]["namespace"], pod["metadata"]["name"]] = None

    def gone(self, namespace: str, name: str) -> None:
        self._records.pop((namespace, name), None)
        self._refusals.pop((namespace, name), None)
        self._note_orphans(namespace)

    def refused(self, job: Object, refused: refusals.Refused) -> None:
        """Look again, each time later."""
        address = (job["metadata"]["namespace"], job["metadata"]["name"])
        times = self._refusals[address] = self._refusals.get(address, 0) + 1
        self.later(job, min(self._batch_s * 2 ** (times - 1), 60 * self._batch_s))

    # one look

    def look(self, job: Object) -> None:
        if not _is_own(job):
            return
        address = (job["metadata"]["namespace"], job["metadata"]["name"])
        if conditions.final(job.get("status") or {}):
            self._records.pop(address, None)
            for pod in self.pods(job):
                self._pods.release(pod)
            return
        sync = Sync(job, copied(job.get("status") or {}), self.pods(job), self._records.get(address, Record()))
        if not sync.status.get("startTime") and not sync.is_suspended:
            sync.status["startTime"] = now()
        sync.ending = self._ending(sync)
        refused = None
        if sync.ending is None:
            refused = self._go_on(sync)
        else:
            self._delete(sync, sync.active_pods)
        sync.put_count("active", sync.active)
        sync.status.update(ready=sync.ready, terminating=sync.terminating)
        self._track(sync)
        if refused is not None:
            raise refused
        self._refusals.pop(address, None)

    def _ending(self, sync: Sync) -> Ending | None:
        for is_success, interim in ((True, "SuccessCriteriaMet"), (False, "FailureTarget")):
            if told := conditions.true(sync.status, interim):
                return Ending(is_success, told["reason"], told["message"])
        for pod in sync.pods:
            if sync.is_failed(pod) and (message := verdict(sync.spec, pod).message):
                return Ending(False, "PodFailurePolicy", message)
        if sync.failed > sync.spec["backoffLimit"] or _has_restarted_too_often(sync):
            return _OVER_LIMIT
        deadline = sync.spec.get("activeDeadlineSeconds")
        if deadline is None or sync.is_suspended:
            return None
        left_s = deadline - age_s(sync.status["startTime"])
        if left_s <= 0:
            return _TOO_LATE
        self.later(sync.job, left_s)
        return None

    def _go_on(self, sync: Sync) -> refusals.Refused | None:
        refused = None if sync.is_deleted else self._manage(sync)
        if sync.is_complete:
            sync.ending = _COMPLETE
        elif not sync.is_deleted:
            self._note_suspension(sync)
        return refused

    def _manage(self, sync: Sync) -> refusals.Refused | None:
        """Delete surplus pods, or create missing ones; returns why a pod was refused."""
        if (surplus := sync.active - sync.wanted) > 0:
            removed = sorted(sync.active_pods, key=of_pods.removal_order)[:surplus]
            for pod in removed:
                self._pods.release(pod)  # its end does not count
            self._delete(sync, removed)
            return None
        missing = sync.wanted - sync.active - (sync.terminating if sync.waits_for_end else 0)
        if missing <= 0:
            return None
        if (left_s := sync.record.left_s(self.cluster.settings.back_off)) > 0:
            self.later(sync.job, max(left_s, self._batch_s))
            sync.active = 0
            return None
        return self._create(sync, missing)

    def _create(self, sync: Sync, missing: int) -> refusals.Refused | None:
        """Create one pod, then twice as many each time, up to the first refusal."""
        batch = 1
        while missing > 0:
            batch = min(batch, missing)
            refused = [self._pods.create(sync.job) for _ in range(batch)]
            sync.active += refused.count(None)
            if any(refused):
                return next(one for one in refused if one is not None)
            missing, batch = missing - batch, batch * 2
        return None

    def _delete(self, sync: Sync, removed: list[Object]) -> None:
        for pod in removed:
            self._pods.delete(sync.job, pod)
            sync.active, sync.terminating = sync.active - 1, sync.terminating + 1
            sync.ready -= of_pods.is_ready(pod)

    def _note_suspension(self, sync: Sync) -> None:
        reason, message = ("JobSuspended", "Job suspended") if sync.is_suspended else ("JobResumed", "Job resumed")
        if conditions.put(sync.status, "Suspended", sync.is_suspended, reason, message):
            self.verbs.event(sync.job, reason.removeprefix("Job"), message, source=of_pods.SOURCE)
            if not sync.is_suspended:
                sync.status["startTime"] = now()

    # counts and ends

    def _track(self, sync: Sync) -> None:
        """List the ended pods in the status, remove their finalizers, count them, and finish the Job."""
        tracked = {pod["metadata"]["uid"]: pod for pod in sync.pods if of_pods.is_tracked(pod)}
        sync.count_released(set(tracked))
        released = [pod for pod in tracked.values() if self._is_releasable(sync, pod)]
        for pod in released:
            self._list(sync, pod)
        if sync.ending is not None:
            conditions.put(sync.status, sync.ending.interim, True, sync.ending.reason, sync.ending.message)
        self._write(sync)
        self._records[sync.address] = sync.record
        for pod in released:
            self._pods.release(pod)
        sync.count_released(tracked.keys() - {pod["metadata"]["uid"] for pod in released})
        if sync.ending is None or sync.terminating or any(map(sync.uncounted, ("succeeded", "failed"))):
            return self._write(sync)
        conditions.put(sync.status, sync.ending.final, True, sync.ending.reason, sync.ending.message)
        if sync.ending.is_success:
            sync.status["completionTime"] = (conditions.true(sync.status, "Complete") or {})["lastTransitionTime"]
        self._write(sync)
        self._tell_end(sync, sync.ending)

    def _is_releasable(self, sync: Sync, pod: Object) -> bool:
        return sync.is_deleted or sync.ending is not None or of_pods.phase(pod) == "Succeeded" or sync.is_failed(pod)

    def _list(self, sync: Sync, pod: Object) -> None:
        """Once the Job fails, each pod without an end is a failed one, too."""
        if of_pods.phase(pod) == "Succeeded":
            sync.list_uncounted("succeeded", pod)
        elif sync.is_failed(pod) or (sync.ending is not None and not sync.ending.is_success):
            if verdict(sync.spec, pod).is_counted:
                sync.list_uncounted("failed", pod)

    def _tell_end(self, sync: Sync, ending: Ending) -> None:
        if not ending.is_success:
            return self.verbs.event(sync.job, ending.reason, ending.message, "Warning", of_pods.SOURCE)
        completions = sync.spec.get("completions")
        if completions is not None and sync.status.get("succeeded", 0) > completions:
            told = "Too many succeeded pods running after completion count reached"
            self.verbs.event(sync.job, "TooManySucceededPods", told, "Warning", of_pods.SOURCE)
        self.verbs.event(sync.job, "Completed", "Job completed", source=of_pods.SOURCE)

    def _write(self, sync: Sync) -> None:
        current = self.verbs.find(JOBS, *sync.address)
        is_same = current is not None and current["metadata"]["uid"] == sync.job["metadata"]["uid"]
        if current is not None and is_same and sync.status != current.get("status"):
            self.verbs.set_status(JOBS, *sync.address, copied(sync.status))


def _is_own(job: Object) -> bool:
    """Whether no other controller manages the Job."""
    return job["spec"].get("managedBy", _OWN) == _OWN


def _has_restarted_too_often(sync: Sync) -> bool:
    """Whether restarts of containers reach the limit; only pods with the policy OnFailure have them."""
    if sync.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(
        one["restartCount"]
        for pod in sync.pods
        if of_pods.phase(pod) in ("Running", "Pending")
        for part in ("initContainerStatuses", "containerStatuses")
        for one in pod["status"].get(part) or ()
    )
    return bool(restarts >= max(sync.spec["backoffLimit"], 1))
