"""The pods of Jobs: their state, creation, deletion, and the finalizer that keeps them until they are counted."""

from __future__ import annotations

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.controllers.batch.back_off import moment
from tests.fakes.kubernetes.controllers.loop import reference
from tests.fakes.kubernetes.kinds import PODS
from tests.fakes.kubernetes.patches import copied
from tests.fakes.kubernetes.store import Object
from tests.fakes.kubernetes.verbs import Verbs

TRACKING = "batch.kubernetes.io/job-tracking"
SOURCE = "job-controller"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_COST = "controller.kubernetes.io/pod-deletion-cost"


def phase(pod: Object) -> str:
    return str(pod["status"].get("phase", ""))


def is_over(pod: Object) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def is_deleted(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_active(pod: Object) -> bool:
    return not is_over(pod) and not is_deleted(pod)


def is_terminating(pod: Object) -> bool:
    return not is_over(pod) and is_deleted(pod)


def is_tracked(pod: Object) -> bool:
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def is_ready(pod: Object) -> bool:
    return _ready_since(pod) is not None


def _ready_since(pod: Object) -> float | None:
    for one in pod["status"].get("conditions") or ():
        if (one["type"], one["status"]) == ("Ready", "True"):
            return moment(one["lastTransitionTime"]).timestamp()
    return None


def owner(pod: Object) -> Object | None:
    """The reference to its controller."""
    references = pod["metadata"].get("ownerReferences") or ()
    return next((one for one in references if one.get("controller")), None)


def removal_order(pod: Object) -> tuple[float, ...]:
    """Sort key of surplus pods: pending before running, unready before ready, new before old."""
    meta, told = pod["metadata"], pod["status"].get("containerStatuses") or ()
    return (
        bool(pod["spec"].get("nodeName")),
        _PHASES.get(phase(pod), 0),
        is_ready(pod),
        float((meta.get("annotations") or {}).get(_COST, 0)),
        -(_ready_since(pod) or 0.0),
        -float(max((one["restartCount"] for one in told), default=0)),
        -moment(meta["creationTimestamp"]).timestamp(),
    )


class JobPods:
    """Writes pods for the controller, with its events."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def create(self, job: Object) -> refusals.Refused | None:
        """Create a pod from the template; returns the refusal. In a namespace that ends, does nothing."""
        template, metadata = job["spec"]["template"], job["spec"]["template"].get("metadata") or {}
        finalizers = list(metadata.get("finalizers") or ())
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **{name: copied(metadata[name]) for name in ("labels", "annotations") if metadata.get(name)},
                "generateName": f"{job['metadata']['name']}-",
                "finalizers": finalizers if TRACKING in finalizers else [*finalizers, TRACKING],
                "ownerReferences": [reference(job)],
            },
            "spec": copied(template["spec"]),
        }
        try:
            made = self._verbs.create(PODS, job["metadata"]["namespace"], body)
        except refusals.Refused as refused:
            if any(one.get("reason") == "NamespaceTerminating" for one in refused.details.get("causes") or ()):
                return None
            self._verbs.event(job, "FailedCreate", f"Error creating: {refused.message}", "Warning", SOURCE)
            return refused
        self._verbs.event(job, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}", source=SOURCE)
        return None

    def delete(self, job: Object, pod: Object) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if self._verbs.find(PODS, namespace, name) is not None:
            self._verbs.delete(PODS, namespace, name)
            self._verbs.event(job, "SuccessfulDelete", f"Deleted pod: {name}", source=SOURCE)

    def release(self, pod: Object) -> None:
        """Remove the finalizer, and with it a deleted pod that its node has ended."""
        meta = pod["metadata"]
        address = (meta["namespace"], meta["name"])
        current = self._verbs.find(PODS, *address)
        if current is None or current["metadata"]["uid"] != meta["uid"] or not is_tracked(current):
            return
        left = [one for one in current["metadata"]["finalizers"] if one != TRACKING]
        metadata = {name: value for name, value in current["metadata"].items() if name != "finalizers"}
        if is_deleted(current) and not left and not metadata.get("deletionGracePeriodSeconds"):
            self._verbs.remove_now(PODS, *address)
        else:
            metadata |= {"finalizers": left} if left else {}
            self._verbs.store.put(PODS.key, address, {**current, "metadata": metadata})
