"""The controller and the allocator of AdaptDLJob: AdaptDL 0.2.11."""

from __future__ import annotations

import datetime
import json
from typing import Any

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.controllers.loop import Controller, exit_codes, reference
from tests.fakes.kubernetes.kinds import NODES, PODS
from tests.fakes.kubernetes.patches import copied, merged
from tests.fakes.kubernetes.store import Object

_OVER = ("Succeeded", "Failed")


class AdaptDLJobController(Controller):
    """Groups of replicas; another allocation stops a group, and starts the next."""

    api_version, kind_name = "adaptdl.petuum.com/v1", "AdaptDLJob"

    def owner(self, obj: Object) -> str | None:
        return (obj["metadata"].get("labels") or {}).get("adaptdl/job")

    def pods(self, job: Object) -> list[Object]:
        namespace, label = job["metadata"]["namespace"], f"adaptdl/job={job['metadata']['name']}"
        return self.verbs.all(PODS, namespace, labels=label)

    def reallocate(self, namespace: str, name: str, replicas: int) -> None:
        """Change the allocation, as the allocator does when the cluster changes."""
        assert self.kind is not None
        job = self.verbs.get(self.kind, namespace, name)
        self._patch(job, {"allocation": self._nodes(replicas)})

    def look(self, job: Object) -> None:
        status: dict[str, Any] = copied(job.get("status") or {})
        if not status.get("phase"):
            return self._patch(job, {"phase": "Pending"})
        pods = self.pods(job)
        if status["phase"] in _OVER:
            return self._delete([pod for pod in pods if pod["status"].get("phase") != "Failed"])
        change = self._ended(job, pods)
        if change:
            moment = datetime.datetime.now(datetime.UTC).isoformat()
            gone = {"allocation": None, "replicas": None, "readyReplicas": None}
            self._delete([pod for pod in pods if pod["status"].get("phase") != "Failed"])
            return self._patch(job, {**change, **gone, "completionTimestamp": moment})
        allocation = status.get("allocation") or []
        if not allocation and status["phase"] == "Pending":
            return self._patch(job, {"allocation": self._nodes(max(job["spec"].get("minReplicas", 0), 1))})
        change = self._next(job, status, pods, allocation)
        if allocation:
            change |= {"replicas": len(allocation), "readyReplicas": sum(_ready(pod) for pod in pods)}
        self._patch(job, change)

    def _next(self, job: Object, status: Object, pods: list[Object], allocation: list[str]) -> dict[str, Any]:
        phase = status["phase"]
        if phase == "Pending":
            return {"phase": "Starting"} if allocation and not pods else {}
        if phase == "Starting":
            return self._start(job, status, pods, allocation)
        if phase == "Running":
            return {"phase": "Stopping"} if not pods or any(_is_moved(pod, allocation) for pod in pods) else {}
        if pods:  # Stopping
            self._delete(pods)
            return {}
        return {"phase": "Pending"}

    def _start(self, job: Object, status: Object, pods: list[Object], allocation: list[str]) -> dict[str, Any]:
        if not allocation or (pods and len(pods) != len(allocation)):
            return {"phase": "Stopping"}
        if not pods:
            group = status.get("group", -1) + 1
            try:
                for rank in range(len(allocation)):
                    self.verbs.create(PODS, job["metadata"]["namespace"], self._pod(job, allocation, group, rank))
            except refusals.Refused as refused:
                return {"phase": "Failed", "reason": "PodCreationError", "message": _page(refused)}
            return {"group": group}
        return {"phase": "Running"} if sum(_ready(pod) for pod in pods) == len(allocation) else {}

    def _ended(self, job: Object, pods: list[Object]) -> dict[str, Any]:
        preemptible = job["spec"].get("preemptible", True)
        if pods and all(pod["status"].get("phase") == "Succeeded" for pod in pods):
            if len(pods) == int(pods[0]["metadata"]["annotations"]["adaptdl/replicas"]):
                return {"phase": "Succeeded"}
        for pod in pods:
            if pod["status"].get("phase") != "Failed":
                continue
            reason = str(pod["status"].get("reason"))
            if reason == "UnexpectedAdmissionError" or reason.startswith("Outof"):  # as it is spelt there
                continue
            if preemptible and ("deletionTimestamp" in pod["metadata"] or 143 in exit_codes(pod).values()):
                continue
            message = f"{pod['metadata']['name']} {pod['status']['phase']}"
            return {"phase": "Failed", "reason": "PodFailure", "message": message}
        return {}

    def _pod(self, job: Object, allocation: list[str], group: int, rank: int) -> Object:
        template, name = copied(job["spec"]["template"]), job["metadata"]["name"]
        metadata, spec = template.get("metadata") or {}, template["spec"]
        own = {
            "adaptdl/replicas": str(len(allocation)),
            "adaptdl/group": str(group),
            "adaptdl/rank": str(rank),
            "adaptdl/node": allocation[rank],
        }
        labels = {"adaptdl": "true", "adaptdl/job": name, "petuum.com/nodegroup": "all"}
        spec["hostname"] = f"{name}-{group}-{rank}"
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), "kubernetes.io/hostname": allocation[rank]}
        spec["restartPolicy"] = "Never"
        memory = {"name": "adaptdl-shm", "emptyDir": {"medium": "Memory"}}
        spec["volumes"] = [*(spec.get("volumes") or []), memory]
        for container in spec["containers"]:
            mount = {"name": "adaptdl-shm", "mountPath": "/dev/shm"}
            container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
            container["env"] = [
                *(container.get("env") or []),
                *self._environment(job, container, allocation, group, rank),
            ]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "spec": spec,
            "metadata": {
                "name": f"{name}-{job['metadata']['uid']}-{group}-{rank}",
                "labels": {**(metadata.get("labels") or {}), **labels},
                "annotations": {**(metadata.get("annotations") or {}), **own},
                "ownerReferences": [reference(job)],
            },
        }

    def _environment(
        self, job: Object, container: Object, allocation: list[str], group: int, rank: int
    ) -> list[dict[str, str]]:
        values = {
            "ADAPTDL_JOB_ID": f"{job['metadata']['namespace']}/{job['metadata']['name']}",
            "ADAPTDL_MASTER_PORT": str(47000 + group),
            "ADAPTDL_NUM_NODES": str(len(set(allocation))),
            "ADAPTDL_NUM_RESTARTS": str(group),
            "ADAPTDL_NUM_REPLICAS": str(len(allocation)),
            "ADAPTDL_REPLICA_RANK": str(rank),
            "ADAPTDL_SUPERVISOR_URL": "http://127.0.0.1:18080",
            "ADAPTDL_SCHED_VERSION": "0.2.11",
        }
        if not ((container.get("resources") or {}).get("limits") or {}).get("nvidia.com/gpu"):
            values["NVIDIA_VISIBLE_DEVICES"] = "none"
        return [{"name": name, "value": value} for name, value in values.items()]

    def _nodes(self, replicas: int) -> list[str]:
        names = [node["metadata"]["name"] for node in self.verbs.store.all(NODES.key)]
        return [names[at % len(names)] for at in range(replicas)]

    def _delete(self, pods: list[Object]) -> None:
        for pod in pods:
            if "deletionTimestamp" not in pod["metadata"]:
                self.verbs.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _patch(self, job: Object, change: dict[str, Any]) -> None:
        """As a merge patch of `status`."""
        assert self.kind is not None
        status = merged(job.get("status") or {}, change)
        self.verbs.set_status(self.kind, job["metadata"]["namespace"], job["metadata"]["name"], status)


def _page(refused: refusals.Refused) -> str:
    """The text of an exception of the Python client, as it is."""
    headers = (
        "HTTPHeaderDict({'Audit-Id': '5d1c', 'Cache-Control': 'no-cache, private', 'Content-Type': 'application/json'})"
    )
    body = json.dumps(refused.status())
    return (
        f"({refused.code})\nReason: {refused.reason}\nHTTP response headers: {headers}\nHTTP response body: {body}\n\n"
    )


def _is_moved(pod: Object, allocation: list[str]) -> bool:
    """Whether the group restarts. A lost pod does not count: while others remain, only the allocator restarts it."""
    told = pod["metadata"]["annotations"]
    return (
        int(told["adaptdl/replicas"]) != len(allocation)
        or told["adaptdl/node"] != allocation[int(told["adaptdl/rank"])]
    )


def _ready(pod: Object) -> bool:
    told = pod["status"].get("containerStatuses") or []
    return bool(told) and all(each["ready"] for each in told)
