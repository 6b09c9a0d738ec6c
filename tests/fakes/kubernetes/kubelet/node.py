"""The kubelet and the scheduler: pods get a node and are run there."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from tests.fakes.kubernetes.admission import quantity
from tests.fakes.kubernetes.controllers.pod_collector import end_orphan
from tests.fakes.kubernetes.defaults import now
from tests.fakes.kubernetes.kinds import CLAIMS, NODES, PODS
from tests.fakes.kubernetes.kubelet import statuses
from tests.fakes.kubernetes.kubelet.pods import PodLife
from tests.fakes.kubernetes.store import Change, Object

if TYPE_CHECKING:
    from tests.fakes.kubernetes.cluster import Cluster

log = logging.getLogger(__name__)
_OVER = ("Succeeded", "Failed")


class Nodes:
    """All nodes of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._verbs = cluster, cluster.verbs
        self.lives: dict[str, PodLife] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        #: Regular expression of unschedulable pod names → the scheduler's message.
        self.unschedulable: dict[str, str] = {}
        self._used_ips = 1
        #: Node → resource → what its pods request that have not ended.
        self._used: dict[str, Counter[str]] = {}

    async def run(self) -> None:
        for pod in self._verbs.store.all(PODS.key):
            self._count(pod, 1)
        stop = self._verbs.store.listen(self._heard)
        self._wake.set()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                self._look()
        finally:
            stop()

    async def close(self) -> None:
        """End all pods with the cluster."""
        started = [each for life in self.lives.values() for each in life.running.values()]
        for task in list(self._tasks.values()):
            task.cancel()
        for running in started:
            running.kill()
            running.reap()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def lose(self, name: str) -> None:
        """Lose the machine: NotReady, taints, and removal of its pods without their status."""
        self._cluster.lost_nodes.add(name)
        self._cluster.isolated_nodes.discard(name)
        for pod in self._unready(name):
            namespace, pod_name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            life = self.life(pod)
            if pod["metadata"].get("finalizers"):
                end_orphan(self._verbs, pod)
            else:
                self._verbs.remove_now(PODS, namespace, pod_name)
            for running in list(life.running.values()) if life else ():
                running.kill()

    def isolate(self, name: str) -> None:
        """Cut the machine off: NotReady, taints, and deletion of its pods, which run on."""
        self._cluster.isolated_nodes.add(name)
        told = "Taint manager: deleting due to NoExecute taint"
        condition = statuses.condition("DisruptionTarget", True, "DeletionByTaintManager", told)
        for pod in self._unready(name):
            address = (pod["metadata"]["namespace"], pod["metadata"]["name"])
            held = statuses.conditions(pod["status"].get("conditions") or [], [condition])
            self._verbs.set_status(PODS, *address, {**pod["status"], "conditions": held})
            self._verbs.delete(PODS, *address)

    def _unready(self, name: str) -> list[Object]:
        """Set a node to NotReady; returns its pods without an end, which are marked with events."""
        self._set_ready(name, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        found = self._verbs.all(PODS, fields=f"spec.nodeName={name}")
        pods = [pod for pod in found if pod["status"].get("phase") not in _OVER]
        for pod in pods:
            self._verbs.event(pod, "NodeNotReady", "Node is not ready", "Warning", "node-controller")
            marking = f"Marking for deletion Pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
            self._verbs.event(pod, "TaintManagerEviction", marking, source="taint-eviction-controller")
        return pods

    def find(self, name: str) -> None:
        self._cluster.lost_nodes.discard(name)
        self._cluster.isolated_nodes.discard(name)
        self._set_ready(name, "True", "KubeletReady", "kubelet is posting ready status")
        for pod in self._verbs.all(PODS, fields=f"spec.nodeName={name}"):
            if (life := self.life(pod)) is not None:
                life.catch_up("deletionTimestamp" in pod["metadata"])
        self.wake()

    def _set_ready(self, name: str, status: str, reason: str, message: str) -> None:
        node = self._verbs.get(NODES, "", name)
        told = {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now(),
            "lastTransitionTime": now(),
        }
        self._verbs.set_status(NODES, "", name, {**node["status"], "conditions": [told]})

    def wake(self) -> None:
        self._wake.set()

    def life(self, pod: Object) -> PodLife | None:
        return self.lives.get(pod["metadata"]["uid"])

    def _heard(self, change: Change) -> None:
        if change.key == PODS.key:
            self._count(change.before, -1)
            self._count(change.after, 1)
            self._wake.set()
            uid = change.last["metadata"]["uid"]
            is_ended = change.after is None or "deletionTimestamp" in change.after["metadata"]
            is_heard = change.last["spec"].get("nodeName") not in self._cluster.isolated_nodes
            if uid in self.lives and is_ended and is_heard:
                self.lives[uid].end()
        elif change.key in ("secrets", "configmaps", CLAIMS.key, NODES.key):
            self._wake.set()
            for life in self.lives.values():
                life.changed.set()

    def _count(self, pod: Object | None, sign: int) -> None:
        """Add the requests of a pod to its node's, or take them away."""
        if pod is not None and (node := pod["spec"].get("nodeName")) and pod["status"].get("phase") not in _OVER:
            used = self._used.setdefault(node, Counter())
            for resource, amount in requests(pod).items():
                used[resource] += sign * amount

    def _look(self) -> None:
        for pod in self._verbs.store.all(PODS.key):
            if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
                pod = self._schedule(pod)
            if pod["spec"].get("nodeName") and pod["metadata"]["uid"] not in self.lives and self._is_mine(pod):
                self._start(pod)

    def _is_mine(self, pod: Object) -> bool:
        return pod["spec"]["nodeName"] not in self._cluster.lost_nodes | self._cluster.isolated_nodes

    def _start(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        life = self.lives[uid] = PodLife(self._cluster, pod, self._next_ip())
        if "deletionTimestamp" in pod["metadata"]:
            life.end()
        task = self._tasks[uid] = asyncio.create_task(life.run(), name=f"pod {pod['metadata']['name']}")
        task.add_done_callback(lambda done: self._ended(uid, done))

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        self.lives.pop(uid, None)
        self._tasks.pop(uid, None)
        self._wake.set()
        if not task.cancelled() and task.exception():
            log.error("pod %s", uid, exc_info=task.exception())

    def _schedule(self, pod: Object) -> Object:
        reasons: dict[str, int] = {}
        nodes = [node for node in self._verbs.store.all(NODES.key) if not node["spec"].get("unschedulable")]
        whole = self._cluster.refuses_to_schedule(pod) or self._unbound_claim(pod)
        if whole is None:
            for node in nodes:
                why = self._misfit(pod, node)
                if why is None:
                    return self._bind(pod, node["metadata"]["name"])
                reasons[why] = reasons.get(why, 0) + 1
        told = ", ".join(f"{count} {why}" for why, count in reasons.items())
        return self._wait(pod, whole or f"0/{len(nodes)} nodes are available: {told or 'no nodes'}.")

    def _unbound_claim(self, pod: Object) -> str | None:
        for volume in pod["spec"].get("volumes") or []:
            if name := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
                claim = self._verbs.find(CLAIMS, pod["metadata"]["namespace"], name)
                if claim is None:
                    return f'persistentvolumeclaim "{name}" not found'
                if claim["status"].get("phase") != "Bound":
                    return "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        return None

    def _misfit(self, pod: Object, node: Object) -> str | None:
        name = node["metadata"]["name"]
        if name in self._cluster.lost_nodes | self._cluster.isolated_nodes:
            return "node(s) had untolerated taint {node.kubernetes.io/unreachable: }"
        labels = node["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
            return "node(s) didn't match Pod's node affinity/selector"
        used = self._used.get(name) or Counter()
        for resource, wanted in requests(pod).items():
            free = quantity(node["status"]["allocatable"].get(resource, "0")) - used[resource]
            if wanted > free + 1e-9:
                return f"Insufficient {resource}"
        return None

    def _bind(self, pod: Object, node: str) -> Object:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        old = pod["status"].get("conditions") or []
        status = {**pod["status"], "conditions": statuses.conditions(old, [statuses.condition("PodScheduled", True)])}
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}
        pod = self._verbs.store.put(PODS.key, (namespace, name), bound)
        self._verbs.event(
            pod, "Scheduled", f"Successfully assigned {namespace}/{name} to {node}", source="default-scheduler"
        )
        return pod

    def _wait(self, pod: Object, message: str) -> Object:
        old = pod["status"].get("conditions") or []
        if any(each.get("message") == message for each in old):
            return pod
        waiting = statuses.condition("PodScheduled", False, "Unschedulable", message)
        status = {**pod["status"], "phase": "Pending", "conditions": statuses.conditions(old, [waiting])}
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        pod = self._verbs.store.put(PODS.key, (namespace, name), {**pod, "status": status})
        self._verbs.event(pod, "FailedScheduling", message, "Warning", source="default-scheduler")
        return pod

    def _next_ip(self) -> str:
        self._used_ips += 1
        return f"127.1.{self._used_ips // 250 % 250}.{self._used_ips % 250 + 1}"


def requests(pod: Object) -> dict[str, float]:
    """The sum over its containers, or the maximum of an init container."""
    total: dict[str, float] = {"pods": 1.0}
    for container in pod["spec"]["containers"]:
        for name, value in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = total.get(name, 0.0) + quantity(value)
    for container in pod["spec"].get("initContainers") or []:
        for name, value in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = max(total.get(name, 0.0), quantity(value))
    return total


def described(name: str, capacity: dict[str, str]) -> Object:
    """A new node."""
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now(),
        "lastTransitionTime": now(),
    }
    status = {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [ready],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
    }
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": status,
    }
