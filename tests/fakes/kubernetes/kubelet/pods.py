"""One pod on its node, from its volumes to its end."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fakes.kubernetes.defaults import now
from tests.fakes.kubernetes.kinds import PODS
from tests.fakes.kubernetes.kubelet import names, statuses
from tests.fakes.kubernetes.kubelet.containers import Containers
from tests.fakes.kubernetes.kubelet.environment import NotConfigured
from tests.fakes.kubernetes.kubelet.images import NotPulled
from tests.fakes.kubernetes.kubelet.processes import KILLED, Running
from tests.fakes.kubernetes.kubelet.statuses import ContainerStatus
from tests.fakes.kubernetes.kubelet.volumes import NotMounted, Volumes
from tests.fakes.kubernetes.store import Object

if TYPE_CHECKING:
    from tests.fakes.kubernetes.cluster import Cluster

log = logging.getLogger(__name__)
#: Seconds between a pod's final status and its removal, in which controllers see it.
_SEEN_S = 0.05


class Ended(Exception):
    """The pod has ended: deleted, evicted, or over its deadline."""


class PodLife:
    """A kubelet's handling of one pod."""

    def __init__(self, cluster: Cluster, pod: Object, ip: str) -> None:
        self._cluster, self._verbs = cluster, cluster.verbs
        self._namespace, self._name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._uid, self._ip = pod["metadata"]["uid"], pod.get("status", {}).get("podIP") or ip
        self._spec = pod["spec"]
        self.folder: Path = cluster.pod_folder(self._uid)
        status = pod.get("status") or {}
        self._phase = "Pending"
        self._init = self._known(status.get("initContainerStatuses"), "initContainers")
        self._containers = self._known(status.get("containerStatuses"), "containers")
        #: Reason and message of killed containers, by container name.
        self.causes: dict[str, str] = {}
        self.running: dict[str, Running] = {}
        #: Wakes everything that waits.
        self.over = asyncio.Event()
        self._verdict: tuple[str, str] | None = None
        self._last_condition: Object | None = None
        self.changed = asyncio.Event()
        self._starter: Containers | None = None

    @property
    def starter(self) -> Containers | None:
        """Starts its commands; set after its volumes are mounted."""
        return self._starter

    def fail(self, reason: str, message: str, condition: Object | None = None) -> None:
        """Ended by the node: eviction and the like. `condition`: another one of the pod's final status."""
        self._verdict, self._last_condition = (reason, message), condition
        self.over.set()

    def catch_up(self, is_deleted: bool) -> None:
        """Report what happened while the node was cut off, and end a pod that was deleted then."""
        self._publish()
        if is_deleted:
            self.end()

    def end(self) -> None:
        """Deleted: ends within the grace period."""
        self.over.set()

    async def run(self) -> None:
        try:
            await self._live()
        except Ended:
            await self._end()
            await asyncio.sleep(_SEEN_S)
        pod = self._pod()
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            await self.over.wait()  # an ended pod stays until it is deleted
            await self._end()
        while self._is_cut_off:  # noqa: ASYNC110 - rare, and only in tests of it
            await asyncio.sleep(_SEEN_S)
        self._gone()

    async def _live(self) -> None:
        pod = self._pod()
        if pod is None or pod["status"].get("phase") in ("Succeeded", "Failed"):
            return
        if (refused := self._cluster.rejection(pod)) is not None:
            return self._reject(pod, *refused)
        deadline = self._spec.get("activeDeadlineSeconds")
        timer = asyncio.get_running_loop().call_later(deadline, self._too_late) if deadline else None
        try:
            await self._prepare(pod)
            await self._run_init()
            await self._run_containers()
        finally:
            if timer is not None:
                timer.cancel()

    def _reject(self, pod: Object, reason: str, message: str) -> None:
        """Refuse the pod: its status has the reason, but no container statuses."""
        told = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}", "startTime": now()}
        kept = {name: value for name, value in pod["status"].items() if name == "qosClass"}
        self._phase = "Failed"
        self._verbs.set_status(PODS, self._namespace, self._name, kept | told)
        self._verbs.event(pod, reason, message, "Warning")

    def _too_late(self) -> None:
        self.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")

    async def _prepare(self, pod: Object) -> None:
        if not self._init:
            for status in self._containers:
                if "waiting" in status.state:
                    status.waits("ContainerCreating")
        self._publish()
        volumes = Volumes(self._cluster, pod, self.folder)
        while True:
            try:
                folders = volumes.mount()
                break
            except NotMounted as error:
                self._verbs.event(pod, "FailedMount", str(error), "Warning")
                await self._pause(self._cluster.settings.back_off / 10)
        names.add(self._cluster.settings.folder, pod, self._ip)
        self._starter = Containers(self._cluster, self.folder, folders, self._ip)

    async def _run_init(self) -> None:
        for at, spec in enumerate(self._spec.get("initContainers") or []):
            status = self._init[at]
            while status.exit_code != 0:
                await self._run_once(spec, status)
                if status.exit_code != 0 and self._spec["restartPolicy"] == "Never":
                    return self._close("Failed")
                if status.exit_code != 0:
                    await self._back_off(spec, status)

    async def _run_containers(self) -> None:
        if self._phase == "Failed":
            return
        pairs = zip(self._spec["containers"], self._containers, strict=True)
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(self._keep_running(spec, status)) for spec, status in pairs]
            over = tasks.create_task(self._watch_over(work))
            await asyncio.wait(work)
            over.cancel()
        if self.over.is_set():
            raise Ended
        self._close("Succeeded" if all(each.exit_code == 0 for each in self._containers) else "Failed")

    async def _watch_over(self, work: list[asyncio.Task[None]]) -> None:
        """Run its containers; waiting ones do not delay the pod's end."""
        await self.over.wait()
        await self._stop_running()
        for task in work:
            task.cancel()

    async def _keep_running(self, spec: Object, status: ContainerStatus) -> None:
        while not self.over.is_set():
            if status.exit_code is None:
                await self._run_once(spec, status)
            policy = self._spec["restartPolicy"]
            if policy == "Never" or (policy == "OnFailure" and status.exit_code == 0) or self.over.is_set():
                return
            await self._back_off(spec, status)

    async def _run_once(self, spec: Object, status: ContainerStatus) -> None:
        """Run a container from pull to exit code."""
        running = self._starter.found(spec, status) if self._starter else None
        if running is None:
            running = await self._start(spec, status)
        if running is None:
            return
        self.running[status.name] = running
        try:
            code = await running.wait()
        finally:
            self.running.pop(status.name, None)
        reason = self.causes.pop(status.name, "")
        status.ended(code, reason, self._starter.last_words(spec, status, code) if self._starter else "")
        self._publish()

    async def _start(self, spec: Object, status: ContainerStatus) -> Running | None:
        assert self._starter is not None
        await self._pull(spec, status)
        while True:
            pod = self._pod()
            if pod is None:
                raise Ended
            try:
                running = self._starter.start(pod, spec, status)
                break
            except NotConfigured as error:
                status.waits("CreateContainerConfigError", str(error))
                self._publish()
                self._verbs.event(pod, "Failed", f"Error: {error}", "Warning")
                await self._pause(self._cluster.settings.back_off / 5)
            except FileNotFoundError as error:
                status.state = {"running": {}}
                status.ended(128, "StartError", str(error))
                self._publish()
                return None
        status.runs(running.id)
        self._publish()
        for reason, message in (("Created", "Created container"), ("Started", "Started container")):
            self._verbs.event(pod, reason, f"{message}: {status.name}")
        return running

    async def _pull(self, spec: Object, status: ContainerStatus) -> None:
        pod, wait = self._pod(), self._cluster.settings.back_off
        if pod is None:
            raise Ended
        image = spec["image"]
        if self._cluster.images.present(spec):
            return
        self._verbs.event(pod, "Pulling", f'Pulling image "{image}"')
        while True:
            try:
                await self._cluster.images.pull(pod, image)
                break
            except NotPulled as error:
                told = f'Failed to pull image "{image}": {error}'
                self._verbs.event(pod, "Failed", told, "Warning")
                self._verbs.event(pod, "Failed", "Error: ErrImagePull", "Warning")
                status.waits("ErrImagePull", str(error))
                self._publish()
                await self._pause(wait / 5)
                back_off = f'Back-off pulling image "{image}"'
                self._verbs.event(pod, "BackOff", back_off)
                self._verbs.event(pod, "Failed", "Error: ImagePullBackOff", "Warning")
                status.waits("ImagePullBackOff", f"{back_off}: ErrImagePull: {error}")
                self._publish()
                await self._pause(wait)
                wait = min(wait * 2, 300.0)
        self._verbs.event(pod, "Pulled", f'Successfully pulled image "{image}" in 10ms')

    async def _back_off(self, spec: Object, status: ContainerStatus) -> None:
        """Wait before a container restart."""
        seconds = self._cluster.settings.back_off * min(2**status.restarts, 30)
        status.again()
        if status.restarts > 1:
            told = f"back-off {seconds:g}s restarting failed container={spec['name']} pod={self._name}"
            status.waits("CrashLoopBackOff", told)
            pod = self._pod()
            self._publish()
            if pod is not None:
                self._verbs.event(pod, "BackOff", f"Back-off restarting failed container {spec['name']}", "Warning")
            await self._pause(seconds)
        else:
            status.waits("PodInitializing")

    async def _pause(self, seconds: float) -> None:
        """Wait; a change ends the wait early. Raises Ended if the pod has ended."""
        self.changed.clear()
        waits = [asyncio.ensure_future(event.wait()) for event in (self.over, self.changed)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if self.over.is_set():
            raise Ended

    async def _end(self) -> None:
        """Stopped by deletion or by the node."""
        await self._stop_running()
        if self._phase in ("Succeeded", "Failed"):
            return
        for status in (*self._init, *self._containers):
            if status.running:
                status.ended(KILLED, "Error")
        self._close("Failed" if self._verdict or self._containers_failed() else "Succeeded")

    def _containers_failed(self) -> bool:
        return any(each.exit_code != 0 for each in self._containers)

    async def _stop_running(self) -> None:
        if not self.running:
            return
        pod = self._pod()
        if pod is not None:
            for name in self.running:
                self._verbs.event(pod, "Killing", f"Stopping container {name}")
        for each in list(self.running.values()):
            each.terminate()
        until = asyncio.get_running_loop().time() + self._grace(pod)
        while self.running and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
            until = min(until, asyncio.get_running_loop().time() + self._grace(self._pod()))
        for each in list(self.running.values()):
            each.kill()
        while self.running:  # noqa: ASYNC110 - a few turns until the waiting tasks have seen it
            await asyncio.sleep(0.005)

    def _grace(self, pod: Object | None) -> float:
        if self._verdict or pod is None:
            return 1.0 if self._verdict else 0.0
        return float(pod["metadata"].get("deletionGracePeriodSeconds", self._spec["terminationGracePeriodSeconds"]))

    def _close(self, phase: str) -> None:
        self._phase = phase
        self._publish()

    def _gone(self) -> None:
        """Report the pod's end to the server, which may then remove it."""
        pod = self._pod()
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            metadata = {**pod["metadata"], "deletionGracePeriodSeconds": 0}
            self._verbs.store.put(PODS.key, (self._namespace, self._name), {**pod, "metadata": metadata})
            if not metadata.get("finalizers"):
                self._verbs.remove_now(PODS, self._namespace, self._name)
        if self._pod() is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _publish(self) -> None:
        pod = self._pod()
        if pod is None or self._is_cut_off:
            return
        if self._phase == "Pending" and any("waiting" not in each.state for each in self._containers):
            self._phase = "Running"
        status = statuses.of_pod(self._phase, self._init, self._containers, pod["status"], self._ip)
        if self._verdict:
            status["reason"], status["message"] = self._verdict
        if self._last_condition is not None and self._phase == "Failed":
            status["conditions"] = statuses.conditions(status["conditions"], [self._last_condition])
        self._verbs.set_status(PODS, self._namespace, self._name, status)

    @property
    def _is_cut_off(self) -> bool:
        return self._spec.get("nodeName") in self._cluster.isolated_nodes

    def _pod(self) -> Object | None:
        """Whether the server still has this pod, not another with the same name."""
        found = self._verbs.find(PODS, self._namespace, self._name)
        return found if found is not None and found["metadata"]["uid"] == self._uid else None

    def _known(self, told: list[Object] | None, part: str) -> list[ContainerStatus]:
        if told:
            return [ContainerStatus.read(each) for each in told]
        return [ContainerStatus(each["name"], each["image"]) for each in self._spec.get(part) or []]
