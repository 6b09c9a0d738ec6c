"""All parts of one cluster."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
from pathlib import Path

from tests.fakes.kubernetes import definitions
from tests.fakes.kubernetes.access import Rules, Tokens, of_account
from tests.fakes.kubernetes.audit import Audit
from tests.fakes.kubernetes.certificates import Authority
from tests.fakes.kubernetes.collector import Collector
from tests.fakes.kubernetes.controllers import kueue
from tests.fakes.kubernetes.controllers.adaptdl import AdaptDLJobController
from tests.fakes.kubernetes.controllers.batch.controller import BatchJobController
from tests.fakes.kubernetes.controllers.batch.time_to_live import TimeToLiveController
from tests.fakes.kubernetes.controllers.everyday import Everyday
from tests.fakes.kubernetes.controllers.framework import FrameworkController
from tests.fakes.kubernetes.controllers.kueue import KueueController
from tests.fakes.kubernetes.controllers.loop import Controller
from tests.fakes.kubernetes.controllers.pod_collector import PodCollector
from tests.fakes.kubernetes.controllers.pytorch import PyTorchJobController
from tests.fakes.kubernetes.controllers.tensorflow import TFJobController
from tests.fakes.kubernetes.faults import Faults
from tests.fakes.kubernetes.kinds import DEFINITIONS, NAMESPACES, NODES, Kinds
from tests.fakes.kubernetes.kubelet import node
from tests.fakes.kubernetes.kubelet.execs import Execs
from tests.fakes.kubernetes.kubelet.forks import Forks
from tests.fakes.kubernetes.kubelet.images import Images
from tests.fakes.kubernetes.kubelet.logs import Logs
from tests.fakes.kubernetes.pretences import Pretences
from tests.fakes.kubernetes.requests import Pages, Target
from tests.fakes.kubernetes.settings import Settings
from tests.fakes.kubernetes.storage import Storage
from tests.fakes.kubernetes.store import Object, Store
from tests.fakes.kubernetes.timeline import Timeline
from tests.fakes.kubernetes.verbs import Verbs
from tests.fakes.kubernetes.watches import Watches

log = logging.getLogger(__name__)
_CONTROLLERS: tuple[type[Controller], ...] = (
    TFJobController,
    PyTorchJobController,
    FrameworkController,
    AdaptDLJobController,
    BatchJobController,
)


class Cluster:
    """State, controllers and nodes; the server is separate, and may be unavailable."""

    def __init__(self, settings: Settings) -> None:
        folder = settings.folder
        folder.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        #: Address of the server for pods; set by the server.
        self.address = ""
        self.authority = Authority(folder / "certificates")
        self.store = Store(folder / "objects.jsonl", managed_fields=settings.managed_fields)
        self.timeline = Timeline()
        self.store.listen(self.timeline.hear)
        self.kinds = Kinds()
        self.verbs = Verbs(self.store, self.kinds)
        self.verbs.unknown_fields = settings.unknown_fields
        self.verbs.minor_version = settings.minor_version
        self.tokens, self.rules = Tokens(folder / "tokens.json"), Rules(self.store)
        self.pages, self.watches, self.faults = Pages(), Watches(self.store), Faults()
        self.watches.bookmark_every = settings.bookmark_every
        self.storage = Storage(folder / "storage", settings.exports)
        self.images, self.pretences = Images(self.verbs), Pretences()
        self.forks = Forks()
        self.lost_nodes: set[str] = set()
        #: Nodes that run on, but cannot reach the server.
        self.isolated_nodes: set[str] = set()
        #: Local folders that all containers see, for communication with tests.
        self.shared: list[Path] = []
        self.unschedulable: dict[str, str] = {}
        #: Pods that their node refuses: name pattern → reason and message.
        self.rejected: dict[str, tuple[str, str]] = {}
        self.log_breaks = 0
        #: Number of requests by verb and resource.
        self.counts: dict[str, int] = {}
        self.audit = Audit(self.verbs)
        self._restarts: dict[str, int] = {}
        self._number = 0
        self.logs, self.execs, self.nodes = Logs(self), Execs(self), node.Nodes(self)
        self.controllers = {each.kind_name: each(self) for each in _CONTROLLERS} if settings.controllers else {}
        if settings.controllers:
            self.controllers["Job time to live"] = TimeToLiveController(self)
        #: Kueue's controller of each kind of jobs.
        self.kueue = {name: KueueController(self, name) for name in kueue.QUEUED_KINDS} if settings.kueue else {}
        self.controllers |= {f"Kueue {name}": each for name, each in self.kueue.items()}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._populate()
        works = [Collector(self.verbs), Everyday(self), PodCollector(self), self.nodes, *self.controllers.values()]
        self._tasks = [asyncio.create_task(each.run(), name=type(each).__name__) for each in works]
        for task in self._tasks:
            task.add_done_callback(_tell_of_error)
        await asyncio.sleep(0)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.nodes.close()
        await self.forks.close()
        self.store.close()

    def pod_folder(self, uid: str) -> Path:
        return self.settings.folder / "pods" / uid

    def account_token(self, namespace: str, name: str, seconds: float) -> str:
        """A token in the form of a real one: a signed text with the account's name; the signature is not checked."""
        user = of_account(namespace, name)
        claims = json.dumps({"sub": user.name}).encode()
        body = base64.urlsafe_b64encode(claims).decode().rstrip("=")
        self._number += 1
        return self.tokens.issue(user.name, user.groups, seconds, f"eyJhbGciOiJub25lIn0.{body}.{self._number:06d}")

    def refuses_to_schedule(self, pod: Object) -> str | None:
        name = pod["metadata"]["name"]
        return next((why for pattern, why in self.unschedulable.items() if re.search(pattern, name)), None)

    def rejection(self, pod: Object) -> tuple[str, str] | None:
        """Reason and message with which the node refuses a pod."""
        name = pod["metadata"]["name"]
        return next((why for pattern, why in self.rejected.items() if re.search(pattern, name)), None)

    def count(self, verb: str, target: Target) -> None:
        key = f"{verb} {target.attributes(verb).full_resource}"
        self.counts[key] = self.counts.get(key, 0) + 1

    def number(self) -> int:
        self._number += 1
        return self._number

    def restarts(self, uid: str) -> int:
        return self._restarts.get(uid, 0)

    def note_restart(self, uid: str) -> None:
        self._restarts[uid] = self.restarts(uid) + 1

    def _populate(self) -> None:
        """Objects of a new cluster."""
        for name in self.settings.namespaces:
            self._once(NAMESPACES.key, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for number in range(self.settings.nodes):
            self._once(NODES.key, node.described(f"node-{number}", self.settings.capacity))
        standard = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "provisioner": "tests/folders",
            "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        }
        self._once("storageclasses.storage.k8s.io", standard)
        for definition in definitions.of_training_jobs(self.settings.operator_version):
            self._once(DEFINITIONS.key, definition)
        if self.settings.kueue:
            kueue.install(self.verbs, self.settings.kueue)

    def _once(self, key: str, obj: Object) -> None:
        kind = self.kinds.by_key(key)
        if kind is not None and self.verbs.find(kind, "", obj["metadata"]["name"]) is None:
            made = self.verbs.create(kind, "", obj)
            if "status" in obj and kind.has_status:
                self.verbs.set_status(kind, "", made["metadata"]["name"], obj["status"])


def _tell_of_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception():
        log.error("%s", task.get_name(), exc_info=task.exception())
