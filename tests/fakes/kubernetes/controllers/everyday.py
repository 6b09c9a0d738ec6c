"""Small controllers of every cluster: initial objects of a namespace, binding of claims."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.fakes.kubernetes.kinds import CLAIMS, CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from tests.fakes.kubernetes.kubelet import times
from tests.fakes.kubernetes.store import Change, Object

if TYPE_CHECKING:
    from tests.fakes.kubernetes.cluster import Cluster

_CLASSES = "storageclasses.storage.k8s.io"
_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_LOOK_AT_LOGS_S = 0.1


class Everyday:
    """All of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._verbs = cluster, cluster.verbs
        self._wake = asyncio.Event()
        self._wake.set()

    async def run(self) -> None:
        stop = self._verbs.store.listen(self._heard)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look())
                tasks.create_task(self._note_logs())
        finally:
            stop()

    def _heard(self, change: Change) -> None:
        if change.key in (NAMESPACES.key, CLAIMS.key, _CLASSES, SERVICE_ACCOUNTS.key):
            self._wake.set()

    async def _look(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for namespace in self._verbs.store.all(NAMESPACES.key):
                if "deletionTimestamp" not in namespace["metadata"]:
                    self._furnish(namespace["metadata"]["name"])
            for claim in self._verbs.store.all(CLAIMS.key):
                if claim["status"].get("phase") == "Pending" and "deletionTimestamp" not in claim["metadata"]:
                    self._bind(claim)

    def _furnish(self, namespace: str) -> None:
        if self._verbs.find(SERVICE_ACCOUNTS, namespace, "default") is None:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            self._verbs.create(SERVICE_ACCOUNTS, namespace, account)
        if self._verbs.find(CONFIG_MAPS, namespace, "kube-root-ca.crt") is None:
            data = {"ca.crt": self._cluster.authority.certificate.decode()}
            root = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}, "data": data}
            self._verbs.create(CONFIG_MAPS, namespace, root)

    def _bind(self, claim: Object) -> None:
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        wanted = claim["spec"].get("storageClassName")
        classes = self._verbs.store.all(_CLASSES)
        if wanted is None:
            default = [each for each in classes if (each["metadata"].get("annotations") or {}).get(_DEFAULT) == "true"]
            wanted = default[0]["metadata"]["name"] if default else None
        if wanted is None or all(each["metadata"]["name"] != wanted for each in classes):
            told = f'storageclass.storage.k8s.io "{wanted}" not found'
            self._verbs.event(claim, "ProvisioningFailed", told, "Warning", "persistentvolume-controller")
            return
        volume = f"pvc-{claim['metadata']['uid']}"
        spec = {**claim["spec"], "storageClassName": wanted, "volumeName": volume}
        requested = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "1Gi")
        status = {"phase": "Bound", "accessModes": spec.get("accessModes"), "capacity": {"storage": requested}}
        self._verbs.store.put(CLAIMS.key, (namespace, name), {**claim, "spec": spec, "status": status})

    async def _note_logs(self) -> None:
        """Poll the logs, to record when lines were written."""
        while True:
            for life in list(self._cluster.nodes.lives.values()):
                for name in list(life.running):
                    for path in (life.folder / name).glob("*.log"):
                        times.note(path)
            await asyncio.sleep(_LOOK_AT_LOGS_S)
