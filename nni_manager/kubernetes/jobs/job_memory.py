"""The memory of one job: its object, pods and their events, kept after their removal, and the resulting report.

A completed job may lose its pods, and a deleted one its object, before it is observed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import milliseconds, now_ms
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.api.names import REPORTS
from nni_manager.kubernetes.jobs import evidence, kueue

#: Seconds after which an image that cannot be pulled, or a container that cannot be created, fails the job.
STUCK_S = 600.0
#: Seconds in which a pod with a node normally starts.
_SLOW_S = 20.0
#: Seconds of refused pods after which a job counts as rejected.
_DENIED_S = 60.0
#: Seconds after which a job without pods states a reason.
_UNMADE_S = 30.0
#: Seconds for an operator to notice a removed pod, and to report it or start another. Less than `metricGrace`,
#: after which the report of the runner counts, which only received a signal.
_NOTICED_S = 3.0
#: Seconds for a pod to end after its grace period, and for the cluster to delete the pods of a removed job. Covers
#: the difference between our clock and the server's.
_ENDING_S = 60.0

Read = Callable[[Object], Observation]


@dataclass(slots=True, kw_only=True)
class JobMemory:
    """The memory of one followed job."""

    job_name: str
    name: str
    #: The uid of the job's object; empty: any object of that name.
    uid: str
    #: The container with the exit code.
    container: str
    #: Its operator restarts it without limit.
    is_restarted: bool = False
    #: See `Kind`.
    keeps_failed_pods: bool = False
    #: See `Kind`.
    memory_field: str = ""
    object: Object | None = None
    #: Time of the job's creation here, by the loop's clock; earlier lists may lack it.
    made_s: float = 0.0
    pods: dict[str, Object] = field(default_factory=dict)
    #: Removed pods, in their last known state.
    gone_pods: dict[str, Object] = field(default_factory=dict)
    events: dict[str, Object] = field(default_factory=dict)
    #: Kueue's object for the job; None: none, or not known yet.
    workload: Object | None = None
    #: Time since which it no longer exists, by the loop's clock.
    removed_s: float | None = None
    #: Time since which a finalizer keeps its deleted object, by the loop's clock.
    _kept_s: float | None = None
    #: Its deletion was watched; otherwise a list lacked it.
    was_deleted: bool = False
    #: The manager requested its end.
    is_cancelled: bool = False
    #: Known ends never change.
    final: Observation | None = None
    #: It was seen running; if it is pending again, it is restarting.
    has_run: bool = False
    #: It failed, but no pod shows how: the watch of pods may lag.
    lacks_pods: bool = False
    #: Its pods were queried since; further evidence will not come.
    has_all_pods: bool = False
    #: The server answered that query.
    knows_all_pods: bool = False
    #: Time since which a pod with a node has not started, by the loop's clock.
    _making_s: float | None = None
    #: That has taken so long that mounts may be missing.
    is_slow_to_start: bool = False
    #: Time since which it waits for pods, by the loop's clock.
    _podless_s: float | None = None
    #: Time since which the cluster refuses its pods, by the loop's clock.
    _denied_s: float | None = None
    #: That has taken long, and nothing explains it: a quota may be used up.
    lacks_reason: bool = False
    _stuck_s: float | None = None
    #: Time since which the reporting pod is known to be removed, by the loop's clock.
    _taken_s: float | None = None

    @property
    def all_pods(self) -> list[Object]:
        return [*self.gone_pods.values(), *self.pods.values()]

    def reporter(self) -> str | None:
        """The name of the reporting pod, the newest of several; it may have ended."""
        found = _reporter(self.pods.values())
        return str(found["metadata"]["name"]) if found else None

    def report(self, read: Read, now_s: float) -> tuple[Observation, float | None]:
        """The current report, and seconds until its next evaluation without an event; None: never."""
        if self.final is not None:
            return self.final, None
        found, again_s = self._look(read, now_s)
        if found.state.is_final:
            self.final = found
        return found, again_s

    def _look(self, read: Read, now_s: float) -> tuple[Observation, float | None]:
        if self.object is None:
            return _LOST, None
        found = read(self.object)
        if found.state.is_final:
            return self._with_next_step(self._ended(found)), None
        where = evidence.place(list(self.pods.values()))
        found = dataclasses.replace(found, place=where)
        self.has_run = self.has_run or evidence.has_begun(self.object, self.pods.values(), self.container)
        if found.state is JobState.PENDING and self.has_run:
            found = dataclasses.replace(found, state=JobState.RUNNING)
        self.has_run = self.has_run or found.state is JobState.RUNNING
        self.is_slow_to_start = self.lacks_reason = False
        leaving = self._leaving_pod()
        left_s = None if leaving is None else _left_s(leaving, now_s, now_s)
        if leaving is not None and left_s is not None and left_s <= 0:
            return self._cut_off(found, leaving), None
        if (removed_s := self._gone_since(now_s)) is not None:
            return self._removed(found, removed_s, now_s)
        if kueue.is_suspended(self.object) and (self.has_run or kueue.was_taken_back(self.workload)):
            report, again_s = self._suspended(found, self.object), None
        elif found.state is JobState.PENDING:
            report, again_s = self._pending(found, now_s)
        else:
            report, again_s = self._taken(found, now_s)
        return report, min(filter(None, (again_s, left_s)), default=None)

    @property
    def _is_being_deleted(self) -> bool:
        """Whether its object waits for the end of its pods, or for a finalizer."""
        return bool((self.object or {}).get("metadata", {}).get("deletionTimestamp"))

    def _gone_since(self, now_s: float) -> float | None:
        """Time since which its object is gone, or was deleted here and is kept by a finalizer; None: neither."""
        if self.removed_s is None and self.is_cancelled and self._kept_s is None:
            self._kept_s = now_s if self._is_being_deleted else None
        return self._kept_s if self.removed_s is None else self.removed_s

    def _suspended(self, found: Observation, job: Object) -> Observation:
        """The report on a job that was suspended after it had run: it would run again, as if it were new.

        The preemption does not count, unless its queue will not admit it again, or a user suspended it.
        """
        if self.is_cancelled or any(map(evidence.is_alive, self.pods.values())):
            return found
        end, why, refused = self._end_of_reporter(), "", None
        if self.workload is not None:
            refused = kueue.refusal(self.workload)
            why = kueue.evicted(self.workload) if refused is None else refused[1]
        by = " by its queue" if kueue.is_queued(job) else ""
        sentence = f"{job.get('kind')} {self.name} was suspended{by}"
        return dataclasses.replace(
            found,
            state=JobState.PREEMPTED,
            is_uncounted=refused is None and kueue.is_queued(job),
            exit_code=end.exit_code if end else None,
            native_reason="Suspended",
            message=": ".join(filter(None, (sentence, why))),
            ended_ms=end.ended_ms if end else None,
            wait=None,
        )

    def _leaving_pod(self) -> Object | None:
        """The reporting pod if it is being deleted and has not ended."""
        pod = _reporter(self.pods.values())
        return pod if pod is not None and evidence.is_leaving(pod) else None

    def _cut_off(self, found: Observation, pod: Object) -> Observation:
        """The report on a job whose pod should have ended long ago: the pod of a node that does not answer stays until
        the node is back or removed."""
        if (self._is_being_deleted or self.was_deleted) and not self.is_cancelled:
            return self._deleted(found)
        sentence = f"node {pod['spec']['nodeName']} does not answer, and pod {pod['metadata']['name']} has not ended"
        return Observation(state=JobState.UNKNOWN, unreachable=sentence, place=evidence.place([pod]))

    def _taken(self, found: Observation, now_s: float) -> tuple[Observation, float | None]:
        """The report on a job that its operator considers running, and seconds until the next evaluation.

        The operator may be down when one of its pods is evicted; the runner then sees only a signal.
        """
        is_explained = self.is_restarted or self.is_cancelled or found.native_reason == evidence.TOO_LONG
        end = None if is_explained else self._end_of_reporter()
        if end is None or not end.is_taken or end.failed_itself or end.exit_code == 0:
            self._taken_s = None
            return found, None
        self._taken_s = now_s if self._taken_s is None else self._taken_s
        left_s = self._taken_s + _NOTICED_S - now_s
        if left_s > 0:
            return found, left_s
        if self._is_being_deleted:
            return self._deleted(found), None
        return dataclasses.replace(
            found,
            state=JobState.PREEMPTED,
            exit_code=end.exit_code,
            native_reason=end.reason,
            message=end.sentence,
            ended_ms=end.ended_ms,
        ), None

    def _end_of_reporter(self) -> evidence.PodEnd | None:
        """The end of the newest reporting pod; None: it runs, or its end is unknown."""
        pod = _reporter(self.all_pods)
        if pod is None:
            return None
        is_gone = pod["metadata"]["name"] not in self.pods
        return evidence.pod_end(pod, self.container) if is_gone or not evidence.is_alive(pod) else None

    def _ended(self, found: Observation) -> Observation:
        """The report on an ended job, with the evidence of its pods."""
        pods = self.all_pods
        where = evidence.place(pods)
        if found.state not in (JobState.FAILED, JobState.PREEMPTED):
            return dataclasses.replace(found, place=where)
        was_taken = found.state is JobState.PREEMPTED
        end = evidence.failure(pods, self.container)
        if not was_taken and evidence.TOO_LONG in (found.native_reason, end.reason if end else ""):
            return _timed_out(dataclasses.replace(found, place=where), end)
        self.lacks_pods = (
            not was_taken and end is None and found.exit_code is None and found.cause is None and not self.has_all_pods
        )
        if self.lacks_pods:
            return Observation(state=JobState.RUNNING, started_ms=found.started_ms, place=where)
        if end is None and self.knows_all_pods and self.keeps_failed_pods and found.cause is None:
            message = "; ".join(
                filter(None, (found.message.rstrip("."), "its failed pod was removed from the cluster"))
            )
            return dataclasses.replace(found, state=JobState.PREEMPTED, message=message, place=where)
        if end is None:
            return dataclasses.replace(
                found, cause=found.cause or evidence.CAUSES.get(found.native_reason), place=where
            )
        if end.reason == evidence.DELETED and self._is_being_deleted and not was_taken and not self.is_cancelled:
            return self._deleted(found)
        native = found.native_reason if end.reason in ("", "Error", "Failed") else end.reason
        message = "; ".join(filter(None, (found.message.rstrip("."), end.sentence)))
        return dataclasses.replace(
            found,
            state=JobState.PREEMPTED if was_taken or (end.is_taken and not end.failed_itself) else JobState.FAILED,
            exit_code=end.exit_code if found.exit_code is None else found.exit_code,
            native_reason=native,
            cause=found.cause or evidence.CAUSES.get(native),
            message=message,
            stderr_tail=end.stderr_tail,
            ended_ms=found.ended_ms or end.ended_ms,
            place=where,
        )

    def _with_next_step(self, found: Observation) -> Observation:
        """The report on an ended job; if it ran out of memory, its message also names the field to raise."""
        if found.cause is not Reason.OUT_OF_MEMORY:
            return found
        words = (found.message.rstrip("."), f"raise {self.memory_field}")
        return dataclasses.replace(found, message="; ".join(filter(None, words)))

    def _removed(self, found: Observation, since_s: float, now_s: float) -> tuple[Observation, float | None]:
        """The report on a job whose object is gone, and seconds until the next evaluation.

        Its end is reported when its pods are gone: until then they use resources and may report results.
        """
        left_s = max((_left_s(pod, since_s, now_s) for pod in self.pods.values()), default=0.0)
        if left_s > 0:
            running = Observation(
                state=JobState.RUNNING,
                started_ms=found.started_ms,
                message="it was deleted, and its pods are ending",
                place=evidence.place(list(self.pods.values())),
            )
            return running, left_s
        if self.is_cancelled:
            return dataclasses.replace(found, state=JobState.CANCELLED, native_reason="Deleted", wait=None), None
        return (self._deleted(found) if self.was_deleted else _LOST), None

    def _deleted(self, found: Observation) -> Observation:
        """The report on a job that others deleted."""
        sentence = f"{self.object and self.object.get('kind')} {self.name} was deleted in the cluster"
        return Observation(
            state=JobState.CANCELLED, native_reason="Deleted", message=sentence, started_ms=found.started_ms
        )

    def _pending(self, found: Observation, now_s: float) -> tuple[Observation, float | None]:
        if self.object is not None and kueue.is_suspended(self.object) and kueue.is_queued(self.object):
            return kueue.waiting(found, self.object, self.workload), None
        pods = list(self.pods.values())
        self._making_s = (self._making_s or now_s) if evidence.is_being_made(pods) else None
        self.is_slow_to_start = self._making_s is not None and now_s - self._making_s >= _SLOW_S
        stuck = evidence.stuck(pods)
        if stuck is None:
            self._stuck_s = None
            return self._waiting(found, pods, now_s)
        self._stuck_s = now_s if self._stuck_s is None else self._stuck_s
        left_s = self._stuck_s + STUCK_S - now_s
        wait = evidence.wait(pods, ())
        if wait is not None and wait.is_hopeless:
            return dataclasses.replace(found, wait=wait), None
        if left_s <= 0:
            return dataclasses.replace(
                found,
                state=JobState.FAILED,
                cause=Reason.SUBMIT_REJECTED,
                native_reason=stuck.reason,
                message=stuck.sentence,
                wait=None,
            ), None
        return dataclasses.replace(found, wait=wait), left_s

    def _waiting(self, found: Observation, pods: list[Object], now_s: float) -> tuple[Observation, float | None]:
        """The report on a job whose pods wait or do not exist yet, and seconds until the next evaluation."""
        wait = evidence.wait(pods, self.events.values()) or found.wait
        if (denial := evidence.denial(pods, self.events.values())) is not None:
            return self._denied(found, denial, now_s)
        self._denied_s = None
        if wait is not None or pods:
            self._podless_s = None
            return dataclasses.replace(found, wait=wait), None
        self._podless_s = now_s if self._podless_s is None else self._podless_s
        left_s = self._podless_s + _UNMADE_S - now_s
        if left_s > 0:
            return found, left_s
        self.lacks_reason = True
        return dataclasses.replace(found, wait=evidence.without_pods(self.object or {})), _UNMADE_S

    def _denied(self, found: Observation, denial: Wait, now_s: float) -> tuple[Observation, float | None]:
        """The report on a job whose pods are refused, and seconds until the next evaluation: its operator tries for
        good, but each job of the service would wait in the same way."""
        self._denied_s = now_s if self._denied_s is None else self._denied_s
        left_s = self._denied_s + _DENIED_S - now_s
        if left_s > 0:
            return dataclasses.replace(found, wait=denial), left_s
        return dataclasses.replace(
            found,
            state=JobState.FAILED,
            cause=Reason.SUBMIT_REJECTED,
            native_reason=str(denial.details["reason"]),
            message=denial.sentence,
            wait=None,
        ), None


def _left_s(pod: Object, since_s: float, now_s: float) -> float:
    """Seconds until a pod should have ended; `since_s`: time of its job's removal, for a pod that is not deleted yet.

    `deletionTimestamp` is the end of the grace period.
    """
    ends_ms = milliseconds(pod["metadata"].get("deletionTimestamp"))
    return _ENDING_S + (since_s - now_s if ends_ms is None else (ends_ms - now_ms()) / 1000)


def _reporter(pods: Iterable[Object]) -> Object | None:
    found = [pod for pod in pods if REPORTS in (pod["metadata"].get("labels") or {})]
    first = [pod for pod in found if pod["metadata"]["name"].endswith("-0")]
    return max(first or found, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)


def _timed_out(found: Observation, end: evidence.PodEnd | None) -> Observation:
    """The report on a failed job whose own time limit, or that of its pod, has expired."""
    of_pod = end.sentence if end is not None and end.reason == evidence.TOO_LONG else ""
    return dataclasses.replace(
        found,
        exit_code=end.exit_code if end is not None and found.exit_code is None else found.exit_code,
        native_reason=evidence.TOO_LONG,
        cause=Reason.TIMEOUT,
        message="; ".join(filter(None, (found.message.rstrip("."), of_pod, evidence.RAISE_LIMIT))),
        stderr_tail=end.stderr_tail if end is not None else found.stderr_tail,
        ended_ms=found.ended_ms or (end.ended_ms if end is not None else None),
    )


_LOST = Observation(state=JobState.LOST, native_reason="NotFound", message="it no longer exists in the cluster")
