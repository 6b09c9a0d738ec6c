"""The garbage collector of pods: ends deleted pods that have no node, and pods whose node no longer exists."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.fakes.kubernetes.kinds import NODES, PODS
from tests.fakes.kubernetes.kubelet import statuses
from tests.fakes.kubernetes.store import Change, Object

if TYPE_CHECKING:
    from tests.fakes.kubernetes.cluster import Cluster
    from tests.fakes.kubernetes.verbs import Verbs


class PodCollector:
    """Waits twice the first back-off, as the real one collects every 20 seconds."""

    def __init__(self, cluster: Cluster) -> None:
        self._verbs, self._period_s = cluster.verbs, 2 * cluster.settings.back_off
        self._wake = asyncio.Event()

    async def run(self) -> None:
        stop = self._verbs.store.listen(self._heard)
        self._wake.set()
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(self._period_s)
                self._wake.clear()
                self._collect()
        finally:
            stop()

    def _heard(self, change: Change) -> None:
        if change.key == NODES.key and change.after is None:
            self._wake.set()
        elif change.key == PODS.key and change.after is not None and _has_no_node(change.after):
            self._wake.set()

    def _collect(self) -> None:
        nodes = {node["metadata"]["name"] for node in self._verbs.store.all(NODES.key)}
        for pod in self._verbs.store.all(PODS.key):
            if _has_no_node(pod):
                end(self._verbs, pod)
            elif pod["spec"].get("nodeName", "") not in {*nodes, ""}:
                end_orphan(self._verbs, pod)


def end_orphan(verbs: Verbs, pod: Object) -> None:
    """End a pod whose node does not exist."""
    end(verbs, pod, statuses.condition("DisruptionTarget", True, "DeletionByPodGC", "PodGC: node no longer exists"))


def end(verbs: Verbs, pod: Object, condition: Object | None = None) -> None:
    """Fail a pod that has no end yet, and delete it by force; a finalizer still keeps it."""
    namespace, name, status = pod["metadata"]["namespace"], pod["metadata"]["name"], pod["status"]
    if status.get("phase") not in ("Succeeded", "Failed"):
        held = statuses.conditions(status.get("conditions") or [], [condition] if condition else [])
        verbs.set_status(PODS, namespace, name, {**status, "phase": "Failed", "conditions": held})
    if verbs.find(PODS, namespace, name) is not None:
        verbs.delete(PODS, namespace, name, {"gracePeriodSeconds": 0})


def _has_no_node(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName")
