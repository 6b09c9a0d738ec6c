"""Evidence about a job in its pods and events: exit code, reasons of its end or wait, and nodes.

Pure functions of objects as the API returns them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nni_manager.domain.clock import milliseconds
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.kubernetes.api.client import Object

#: Wait reasons of a container that concern its image.
_IMAGE = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "RegistryUnavailable",
        "ImageInspectError",
        "SignatureValidationFailed",
    }
)
#: Other wait reasons of a container that do not resolve without a change.
_STUCK = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"})
#: Reasons of a pod's end, or of its condition `DisruptionTarget`, that the cluster caused.
_TAKEN = frozenset(
    {
        "Evicted",
        "Preempting",
        "Preempted",
        "Shutdown",
        "Terminated",
        "NodeShutdown",
        "NodeLost",
        "NodeAffinity",
        "PreemptionByScheduler",
        "DeletionByTaintManager",
        "EvictionByEvictionAPI",
        "DeletionByPodGC",
        "TerminationByKubelet",
        "UnexpectedAdmissionError",
    }
)
#: Prefixes of the reasons when a kubelet has no room for a pod: `OutOfcpu`, `OutOfnvidia.com/gpu`.
_NO_ROOM = "OutOf"
#: The reason of a pod or Job that exceeded its own time limit, and the next step.
TOO_LONG = "DeadlineExceeded"
RAISE_LIMIT = "raise activeDeadlineSeconds in the pod template, or in the policy of the cluster that sets it"
#: The reason of a deleted pod.
DELETED = "Deleted"
#: Exit codes of a container that a kubelet ended: by SIGTERM, and by SIGKILL after the grace period.
_ENDED_BY_KUBELET = (143, 137)
#: Events that an operator sends for every job; they do not explain a wait.
_SAYS_NOTHING = frozenset({"SetPodTemplateRestartPolicy", "SettedPodTemplateRestartPolicy"})
#: Reasons of a container's end with a special meaning here.
CAUSES = {"OOMKilled": Reason.OUT_OF_MEMORY}
_MOST_TAIL = 2048
#: Reasons of events about pods that an operator could not create, and the server's words for a lasting refusal.
_NOT_CREATED = ("FailedCreatePod", "FailedCreate")
_DENIED = re.compile(r"denied (the )?request|\[denied by|is forbidden|is invalid", re.IGNORECASE)
#: Refusals that pass: quotas, a namespace that ends, a server that has just started.
_PASSING = re.compile(
    r"exceeded quota|status unknown for quota|being terminated|not yet ready to handle request|caches not synchronized",
    re.IGNORECASE,
)
#: Events that explain missing or unstarted pods.
_QUOTA = re.compile(r"exceeded quota", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEnd:
    """The end of a pod's container."""

    pod: str
    exit_code: int | None
    reason: str
    message: str
    stderr_tail: str
    started_ms: int | None
    ended_ms: int | None
    #: The cluster ended it for its own reasons, or a user deleted it.
    is_taken: bool

    @property
    def sentence(self) -> str:
        """Its pod, the reason, and the cluster's message."""
        return "; ".join(filter(None, (f"pod {self.pod}: {self.reason}", self.message)))

    @property
    def failed_itself(self) -> bool:
        """Whether a removed pod had failed before: otherwise it has the codes of SIGTERM and SIGKILL."""
        return self.exit_code not in (None, 0, *_ENDED_BY_KUBELET)


def is_alive(pod: Object) -> bool:
    """Whether a pod's containers run, or may still run."""
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def is_leaving(pod: Object) -> bool:
    """Whether a pod with a node is being deleted and has not ended."""
    has_node = bool((pod.get("spec") or {}).get("nodeName"))
    return has_node and bool(pod["metadata"].get("deletionTimestamp")) and is_alive(pod)


def has_begun(job: Object, pods: Iterable[Object], container: str) -> bool:
    """Whether a job has run, by its object or pods, even if it ran before this process followed it.

    A suspended Job keeps its start, which may be earlier than its pod's; operators keep the condition `Running` and
    set it to false.
    """
    status = job.get("status") or {}
    is_stopped = bool((job.get("spec") or {}).get("suspend")) and bool(status.get("startTime"))
    has_condition = any(one.get("type") == "Running" for one in status.get("conditions") or ())
    states = (one for pod in pods for one in _statuses(pod.get("status") or {}) if one.get("name") == container)
    return (
        is_stopped
        or has_condition
        or any((one.get("state") or {}).keys() & {"running", "terminated"} for one in states)
    )


def pod_end(pod: Object, container: str = "") -> PodEnd | None:
    """The end of a pod's container, preferably the named one; None: the pod has not ended."""
    status = pod.get("status") or {}
    taken = _taken(status) or _deleted(pod) or _refused(status)
    ended = [_terminated(one) for one in _statuses(status) if _terminated(one)]
    wanted = [one for one in ended if one["name"] == container] or ended
    if is_alive(pod) and not taken:
        return None
    first = next((one for one in wanted if one.get("exitCode")), wanted[0] if wanted else {})
    code = first.get("exitCode")
    reason = taken or str(status.get("reason") or first.get("reason") or status.get("phase") or "")
    return PodEnd(
        pod=pod["metadata"]["name"],
        exit_code=code if isinstance(code, int) else None,
        reason=reason,
        message=str(status.get("message") or ""),
        stderr_tail=str(first.get("message") or "")[-_MOST_TAIL:],
        started_ms=milliseconds(first.get("startedAt")),
        ended_ms=milliseconds(first.get("finishedAt")),
        is_taken=bool(taken),
    )


def _statuses(status: Object) -> Iterator[Object]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _terminated(container: Object) -> dict[str, Any]:
    ended = (container.get("state") or {}).get("terminated")
    return {"name": container.get("name"), **ended} if ended else {}


def _taken(status: Object) -> str:
    """The cluster's reason for ending a pod; empty: it did not."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return str(condition.get("reason") or "DisruptionTarget")
    reason = str(status.get("reason") or "")
    return reason if reason in _TAKEN or reason.startswith(_NO_ROOM) else ""


def _deleted(pod: Object) -> str:
    """Why a deleted pod ended, as when a node is drained; empty: it was not deleted, or had ended before."""
    if not pod["metadata"].get("deletionTimestamp"):
        return ""
    codes = [ended.get("exitCode") for one in _statuses(pod.get("status") or {}) if (ended := _terminated(one))]
    return "" if any(code and code not in _ENDED_BY_KUBELET for code in codes) else DELETED


def _refused(status: Object) -> str:
    """Why a pod failed before its containers ran, as its node did not admit it; empty: a container has ended, or the
    pod's own time limit expired."""
    if status.get("phase") != "Failed" or any(_terminated(one) for one in _statuses(status)):
        return ""
    reason = str(status.get("reason") or "Failed")
    return "" if reason == TOO_LONG else reason


def failure(pods: Iterable[Object], container: str = "") -> PodEnd | None:
    """The pod end that explains the job's: the first failure not caused by the cluster, else one caused by it."""
    ends = [end for pod in pods if (end := pod_end(pod, container)) is not None]
    bad = [end for end in ends if end.exit_code or end.is_taken or end.reason in ("Failed", TOO_LONG)]
    return min(bad, key=lambda end: (end.is_taken and not end.failed_itself, end.ended_ms or 0), default=None)


def place(pods: Sequence[Object]) -> str:
    """Pods and their nodes, such as ``pod a on node-1``; at most four."""
    found = [(pod["metadata"]["name"], (pod.get("spec") or {}).get("nodeName")) for pod in pods]
    return ", ".join(f"pod {name} on {node}" if node else f"pod {name}" for name, node in sorted(found)[:4])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A container that cannot start without a change by the user."""

    reason: str
    sentence: str
    #: No retry can succeed: `Wait.is_hopeless`.
    is_hopeless: bool


def stuck(pods: Iterable[Object]) -> Stuck | None:
    """The first container of these pods that cannot be created; None: there is none."""
    for pod in pods:
        for container in _statuses(pod.get("status") or {}):
            waiting = (container.get("state") or {}).get("waiting") or {}
            reason = str(waiting.get("reason") or "")
            if reason in _IMAGE or reason in _STUCK:
                what = f"image {container.get('image')}" if reason in _IMAGE else f"container {container.get('name')}"
                message = str(waiting.get("message") or "")
                sentence = f"{what} of pod {pod['metadata']['name']}: {reason}{': ' if message else ''}{message}"
                return Stuck(reason=reason, sentence=sentence, is_hopeless=reason == "InvalidImageName")
    return None


def is_being_made(pods: Iterable[Object]) -> bool:
    """Whether one of these pods has a node, and its containers wait there for volumes or images."""
    waiting = [
        (one.get("state") or {}).get("waiting") or {} for pod in pods for one in _statuses(pod.get("status") or {})
    ]
    return any(one.get("reason") == "ContainerCreating" for one in waiting)


def wait(pods: Sequence[Object], events: Iterable[Object]) -> Wait | None:
    """The reason why a job does not run yet, if the cluster states one."""
    if (found := stuck(pods)) is not None:
        code = WaitCode.IMAGE if found.reason in _IMAGE else WaitCode.SUBMITTED
        return Wait(
            code=code,
            sentence=found.sentence,
            details={"reason": found.reason},
            is_hopeless=found.is_hopeless,
        )
    for pod in pods:
        for condition in (pod.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                name = pod["metadata"]["name"]
                return Wait(
                    code=WaitCode.UNSCHEDULABLE,
                    sentence=f"pod {name}: {condition.get('message') or 'no node fits'}",
                    details={"pod": name, "reason": str(condition.get("reason") or "")},
                )
    return _from_events(events)


def _from_events(events: Iterable[Object]) -> Wait | None:
    told = [event for event in events if event.get("reason") not in _SAYS_NOTHING]
    newest = max(told, key=_time, default=None)
    if newest is None:
        return None
    message, reason = str(newest.get("message") or ""), str(newest.get("reason") or "")
    code = WaitCode.QUOTA if _QUOTA.search(message) else _CODES.get(reason, WaitCode.SUBMITTED)
    about = newest.get("involvedObject") or {}
    sentence = f"{about.get('kind', 'object')} {about.get('name', '')}: {reason}: {message}".strip()
    return Wait(code=code, sentence=sentence, details={"reason": reason})


def denial(pods: Sequence[Object], events: Iterable[Object]) -> Wait | None:
    """The refusal of a job's pods by a policy, a webhook or a missing right; None: pods exist, or may exist soon."""
    found = None if pods else _from_events(events)
    is_denied = found is not None and found.details["reason"] in _NOT_CREATED and _DENIED.search(found.sentence)
    return found if is_denied and found is not None and not _PASSING.search(found.sentence) else None


def without_pods(job: Object) -> Wait:
    """The wait reason of a job that has had no pods for a while, from its object alone."""
    what = f"{job.get('kind')} {(job.get('metadata') or {}).get('name')}"
    if not job.get("status"):
        sentence = f"{what} has no pod yet: its operator has not acted on it; check that the operator runs"
    else:
        sentence = f"{what} has no pod yet: its operator has created none; see the operator's log and the quotas"
    return Wait(code=WaitCode.SUBMITTED, sentence=sentence, details={"reason": "NoPods"})


def _time(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


_CODES = {"FailedScheduling": WaitCode.UNSCHEDULABLE}
