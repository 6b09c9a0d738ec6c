"""The route with which tests cause faults: `POST /_control/NAME` with a JSON body.

If the server runs in the test's own process, call the methods of `Control` directly.
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.fakes.kubernetes import patches, refusals, requests
from tests.fakes.kubernetes.faults import Fault
from tests.fakes.kubernetes.kinds import JOBS, PODS, Kind
from tests.fakes.kubernetes.kubelet import statuses
from tests.fakes.kubernetes.kubelet.pods import PodLife
from tests.fakes.kubernetes.pretences import Pretence
from tests.fakes.kubernetes.store import Object

if TYPE_CHECKING:
    from tests.fakes.kubernetes.controllers.kueue import KueueController
    from tests.fakes.kubernetes.server import Server


class Control:
    """Each public method is a route with its name, `_` as `-`; keyword arguments come from the body."""

    def __init__(self, server: Server) -> None:
        self._server, self._cluster = server, server.cluster
        self._later: set[asyncio.Task[None]] = set()

    async def answer(self, request: web.Request) -> web.Response:
        name = request.path.removeprefix("/_control/").replace("-", "_")
        method = getattr(self, name, None) if not name.startswith("_") and name != "answer" else None
        if method is None:
            raise refusals.no_such_resource()
        try:
            told = method(**(await requests.body(request) or {}))
        except TypeError as error:
            raise refusals.bad_request(str(error)) from error
        if asyncio.iscoroutine(told):
            told = await told
        return web.json_response(told if told is not None else {})

    # requests and watches

    def fault(self, **given: Any) -> None:
        """The next matching requests fail: see `faults.Fault`."""
        self._cluster.faults.add(Fault.read(given))

    def met(self) -> dict[str, int]:
        """Number of requests with a fault so far."""
        return {"requests": self._cluster.faults.met}

    def clear(self) -> None:
        """Remove all faults, simulations, broken images, lost nodes, refused pods and webhooks."""
        cluster = self._cluster
        cluster.faults.clear()
        cluster.pretences.clear()
        cluster.images.broken.clear()
        cluster.images.private.clear()
        cluster.images.slow = 0.0
        cluster.unschedulable.clear()
        cluster.rejected.clear()
        cluster.verbs.webhooks.clear()
        for node in {*cluster.lost_nodes, *cluster.isolated_nodes}:
            cluster.nodes.find(node)

    def break_watches(self) -> None:
        self._cluster.watches.break_all()

    def compact(self) -> None:
        """Answer all older resource versions and `continue` tokens with 410."""
        self._cluster.store.compact()
        self._cluster.pages.forget()

    async def outage(self, seconds: float) -> None:
        """Close the listener for a number of seconds; pods and controllers continue."""
        task = asyncio.create_task(self._be_away(seconds))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _be_away(self, seconds: float) -> None:
        await asyncio.sleep(0.05)  # send the answer to this call first
        await self._server.stop_listening()
        await asyncio.sleep(seconds)
        await self._server.listen()

    def expire_tokens(self, user: str) -> None:
        self._cluster.tokens.expire(user)

    def user(self, name: str, groups: list[str] | None = None, seconds: float | None = None) -> dict[str, str]:
        """A token of a user for role bindings."""
        return {"token": self._cluster.tokens.issue(name, tuple(groups or ()), seconds)}

    def unknown_fields(self, mode: str) -> None:
        if mode not in ("prune", "refuse"):
            raise refusals.bad_request("mode is prune or refuse")
        self._cluster.verbs.unknown_fields = mode

    def deny(self, resource: str, webhook: str, message: str = "") -> None:
        """A webhook denies every new object of a kind."""
        self._cluster.verbs.webhooks.deny(self._kind(resource), webhook, message)

    def counts(self) -> dict[str, int]:
        """Number of requests by verb and resource."""
        return dict(self._cluster.counts)

    def audit(self, since: int = 0) -> list[dict[str, Any]]:
        """All requests about objects after the first `since`, as `audit.Entry`."""
        return self._cluster.audit.entries[since:]

    def timeline(self, resource: str) -> dict[str, dict[str, float]]:
        """Time of each job's status changes, in milliseconds since the epoch."""
        return self._cluster.timeline.moments.get(resource, {})

    # pods and nodes

    def share(self, path: str) -> None:
        """Show a local folder to containers that start from now on, for communication with tests."""
        self._cluster.shared.append(Path(path))

    def pretend(self, selector: str, seconds: float = 0.0, exit_code: int = 0, log: str = "") -> None:
        """Simulate pods with these labels without a process."""
        self._cluster.pretences.add(Pretence(selector, seconds, exit_code, log))

    def fork(self, selector: str) -> None:
        """Fork the trial runners of pods with these labels from one process."""
        self._cluster.pretences.add(Pretence(selector, forked=True))

    def evict(self, namespace: str, name: str, message: str = "The node was low on resource: memory.") -> None:
        told = statuses.condition("DisruptionTarget", True, "TerminationByKubelet", message)
        self._life(namespace, name).fail("Evicted", message, told)
        self._cluster.verbs.event(self._cluster.verbs.get(PODS, namespace, name), "Evicted", message, "Warning")

    def oom_kill(self, namespace: str, name: str, container: str = "") -> None:
        life = self._life(namespace, name)
        for each, running in list(life.running.items()):
            if not container or each == container:
                life.causes[each] = "OOMKilled"
                running.kill()

    def break_image(self, pattern: str, error: str = "not found") -> None:
        self._cluster.images.broken[pattern] = error

    def mend_images(self) -> None:
        self._cluster.images.broken.clear()

    def private_registry(self, host: str, user: str, password: str) -> None:
        self._cluster.images.private[host] = (user, password)

    def slow_images(self, seconds: float) -> None:
        self._cluster.images.slow = seconds

    def unschedulable(self, pattern: str, message: str) -> None:
        """Pods with a matching name get no node."""
        self._cluster.unschedulable[pattern] = message

    def schedulable(self) -> None:
        self._cluster.unschedulable.clear()
        self._cluster.nodes.wake()

    def reject(self, pattern: str, reason: str, message: str) -> None:
        """Pods with a matching name get a node whose kubelet refuses them, for example for lack of memory."""
        self._cluster.rejected[pattern] = (reason, message)

    def lose_pod(self, namespace: str, name: str) -> None:
        """Remove a pod at once without a final status, like a wiped node."""
        life = self._cluster.nodes.life(self._cluster.verbs.get(PODS, namespace, name))
        self._cluster.verbs.remove_now(PODS, namespace, name)
        for running in list(life.running.values()) if life else ():
            running.kill()

    def vanish(self, resource: str, namespace: str, name: str) -> None:
        """Remove an object without an event: all watches end, and their next version is too old."""
        self._cluster.watches.deaf = True
        try:
            self._cluster.verbs.remove_now(self._kind(resource), namespace, name)
        finally:
            self._cluster.watches.deaf = False
        self.break_watches()
        self.compact()

    def preempt(self, namespace: str, name: str) -> None:
        """Preempt a pod: the scheduler deletes it for one with higher priority."""
        verbs = self._cluster.verbs
        pod = verbs.get(PODS, namespace, name)
        message = "default-scheduler: preempting to accommodate a higher priority pod"
        told = statuses.condition("DisruptionTarget", True, "PreemptionByScheduler", message)
        held = statuses.conditions(pod["status"].get("conditions") or [], [told])
        verbs.set_status(PODS, namespace, name, {**pod["status"], "conditions": held})
        told_by_event = f"Preempted by pod {uuid.uuid4()} on node {pod['spec'].get('nodeName', '')}"
        verbs.event(pod, "Preempted", told_by_event, source="default-scheduler")
        verbs.delete(PODS, namespace, name)

    def suspend(self, namespace: str, name: str, is_suspended: bool = True) -> None:
        """Suspend or resume a Job, like `kubectl patch`."""
        change = {"spec": {"suspend": is_suspended}}
        self._cluster.verbs.patch(JOBS, namespace, name, change, patches.MERGE)

    def delete(self, resource: str, namespace: str, name: str, policy: str = "Background") -> None:
        """Delete an object like kubectl, without a check of rights. `policy`: of propagation to its dependents."""
        self._cluster.verbs.delete(self._kind(resource), namespace, name, {"propagationPolicy": policy})

    def lose_node(self, name: str) -> None:
        """Lose a node: its pods are marked, and removed by force."""
        self._cluster.nodes.lose(name)

    def isolate_node(self, name: str) -> None:
        """Cut a node off: its pods are deleted, but they run on there and never end, until it is found or lost."""
        self._cluster.nodes.isolate(name)

    def find_node(self, name: str) -> None:
        self._cluster.nodes.find(name)

    def reallocate(self, namespace: str, name: str, replicas: int) -> None:
        """Change the allocation of an AdaptDLJob."""
        self._controller("AdaptDLJob").reallocate(namespace, name, replicas)

    def export(self, server: str, path: str, folder: str) -> None:
        """Add a local folder as an NFS export."""
        self._cluster.storage.exports[f"{server}:{path}"] = Path(folder)

    def break_logs(self) -> None:
        """Cut all followed logs."""
        self._cluster.log_breaks += 1

    async def break_execs(self) -> None:
        await self._cluster.execs.break_all()

    # Kueue

    def kueue_admit(self, namespace: str, name: str, kind: str = "Job") -> None:
        """Admit the Workload of a job."""
        self._kueue(kind).admit(self._queued(kind, namespace, name))

    def kueue_hold(self, namespace: str, name: str, reason: str, message: str, kind: str = "Job") -> None:
        """Reserve no quota for a job."""
        self._kueue(kind).hold(self._queued(kind, namespace, name), reason, message)

    def kueue_evict(self, namespace: str, name: str, reason: str, message: str, kind: str = "Job") -> None:
        """Evict the Workload of a job, for example because of a preemption."""
        self._kueue(kind).evict(self._queued(kind, namespace, name), reason, message)

    def kueue_deactivate(self, namespace: str, name: str, kind: str = "Job") -> None:
        self._kueue(kind).deactivate(self._queued(kind, namespace, name))

    def _kueue(self, kind: str) -> KueueController:
        return self._cluster.kueue[kind]

    def _queued(self, kind: str, namespace: str, name: str) -> Object:
        found = self._kueue(kind).kind
        assert found is not None, "its definition is there"
        return self._cluster.verbs.get(found, namespace, name)

    # controllers

    def pause(self, kind: str) -> None:
        self._controller(kind).paused = True

    def resume(self, kind: str) -> None:
        self._controller(kind).resume()

    def _kind(self, resource: str) -> Kind:
        """A kind by its full name: `pods`, `tfjobs.kubeflow.org`."""
        kind = self._cluster.kinds.by_key(resource)
        if kind is None:
            raise refusals.no_such_resource()
        return kind

    def _controller(self, kind: str) -> Any:
        if kind not in self._cluster.controllers:
            raise refusals.bad_request(f"no controller of {kind}")
        return self._cluster.controllers[kind]

    def _life(self, namespace: str, name: str) -> PodLife:
        life = self._cluster.nodes.life(self._cluster.verbs.get(PODS, namespace, name))
        if life is None:
            raise refusals.bad_request(f"pod {name} has no node, or has ended")
        return life
