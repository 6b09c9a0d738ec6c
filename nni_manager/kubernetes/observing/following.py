"""The followed jobs of one service: passes each informer event to the job that it concerns, and wakes the job."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import PlatformError
from nni_manager.kubernetes.api.client import Object, Refusal
from nni_manager.kubernetes.api.informer import Informer
from nni_manager.kubernetes.api.names import EVENTS, JOB, KUEUE, PODS, WORKLOAD_JOB, Resource
from nni_manager.kubernetes.jobs.job_memory import JobMemory, Read

log = logging.getLogger(__name__)

#: Maximum number of stored events per job.
_MOST_EVENTS = 20
#: Seconds between two queries for a job that a list lacks, and the number of answers after which it is gone.
_MISSING_AGAIN_S = 5.0
_MISSED_TWICE = 2


class Following:
    """A listener of the informers of jobs, pods and events. `wake`: called with a job's name."""

    def __init__(
        self,
        jobs: Informer,
        pods: Informer,
        events: Informer,
        read: Read,
        wake: Callable[[str], None],
        workloads: Informer | None = None,
    ) -> None:
        self._informers = (jobs, pods, events, *([workloads] if workloads else []))
        #: Name of a job → Kueue's object for it.
        self._workloads = {_owner(one): one for one in workloads.objects.values()} if workloads else {}
        self._jobs, self._pods = jobs, pods
        self._told = EventIndex(events.objects.values())
        self._read = read
        self._wake = wake
        self._memories: dict[str, JobMemory] = {}
        #: Job → its pods, followed or not.
        self._pods_of: dict[str, dict[str, Object]] = {}
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        #: Job → task that queries its pods.
        self._asking: dict[str, asyncio.Task[None]] = {}
        #: Job that a list lacks → task that queries it by name.
        self._seeking: dict[str, asyncio.Task[None]] = {}
        #: Called with a job whose pods or object have changed.
        self.on_change: Callable[[JobMemory], None] = lambda memory: None
        for pod in pods.objects.values():
            self._put_pod(pod)
        for informer in self._informers:
            informer.listeners.append(self)

    def close(self) -> None:
        for informer in self._informers:
            if self in informer.listeners:
                informer.listeners.remove(self)
        for name in {*self._alarms, *self._asking, *self._seeking}:
            self._wait_no_more(name)

    def find(self, name: str) -> JobMemory | None:
        return self._memories.get(name)

    def follow(self, memory: JobMemory) -> JobMemory:
        """Starts following a job; idempotent. `memory.object`: the server's answer if it was just created."""
        known = self._memories.get(memory.name)
        if known is not None and known.uid in ("", memory.uid):
            return known
        self._memories[memory.name] = memory
        listed = self._jobs.objects.get(memory.name)
        if listed is not None and _is_same(memory, listed):
            memory.object = listed
        memory.pods.update(self._pods_of.get(memory.name, {}))
        self._put_workload(self._workloads.get(memory.name))
        for event in self._told.of_job(memory.name):
            self._put_event(event)
        return memory

    def forget(self, name: str) -> None:
        self._memories.pop(name, None)
        self._wait_no_more(name)

    def wake(self, memory: JobMemory) -> None:
        """Has the job observed again."""
        self._wake(memory.job_name)

    def _wait_no_more(self, name: str) -> None:
        if (alarm := self._alarms.pop(name, None)) is not None:
            alarm.cancel()
        for tasks in (self._asking, self._seeking):
            if (task := tasks.pop(name, None)) is not None:
                task.cancel()

    def report(self, memory: JobMemory) -> Observation:
        loop = asyncio.get_running_loop()
        found, again_s = memory.report(self._read, loop.time())
        alarm = self._alarms.pop(memory.name, None)
        if alarm is not None:
            alarm.cancel()
        if again_s is not None:
            self._alarms[memory.name] = loop.call_later(again_s + 0.01, self._wake, memory.job_name)
        if memory.lacks_pods and memory.name not in self._asking:
            self._asking[memory.name] = asyncio.create_task(self._ask_for_pods(memory), name=f"pods of {memory.name}")
        return found

    async def _ask_for_pods(self, memory: JobMemory) -> None:
        """Queries the pods of a job; if they explain nothing, the job's own status counts."""
        try:
            memory.knows_all_pods = await self._pods.ask(("labelSelector", f"{JOB}={memory.name}"))
        except Exception:
            log.exception("the cluster's answer about the pods of %s is invalid", memory.name)
        memory.has_all_pods = True
        self._tell(memory)

    # Events of informers

    def on_object(self, resource: Resource, found: Object) -> None:
        if resource == EVENTS:
            self._told.put(found)
            memory = self._put_event(found)
            if memory is not None and not memory.has_run:  # events explain waits, but nothing about running jobs
                self._tell(memory)
        elif resource.group == KUEUE:
            self._workloads[_owner(found)] = found
            self._tell(self._put_workload(found))
        elif resource == PODS:
            self._put_pod(found)
            memory = self._memories.get(_label(found))
            if memory is not None:
                memory.pods[found["metadata"]["name"]] = found
                memory.gone_pods.pop(found["metadata"]["name"], None)
            self._tell(memory)
        elif (memory := self._memories.get(found["metadata"]["name"])) is not None and _is_same(memory, found):
            memory.object = found
            memory.removed_s = None
            self._tell(memory)

    def on_removed(self, resource: Resource, last: Object, *, was_seen: bool) -> None:
        if resource == EVENTS:
            self._told.drop(last)
        elif resource.group == KUEUE:
            self._workloads.pop(_owner(last), None)
        elif resource == PODS:
            self._drop_pod(last)
            memory = self._memories.get(_label(last))
            if memory is not None:
                memory.pods.pop(last["metadata"]["name"], None)
                memory.gone_pods[last["metadata"]["name"]] = last
            self._tell(memory)
        else:
            memory = self._memories.get(last["metadata"]["name"])
            if memory is not None and _is_same(memory, last):
                memory.object = last
                self._remove(memory) if was_seen else self._seek(memory)

    def on_listed(self, resource: Resource, begun_s: float, names: frozenset[str]) -> None:
        """Finds jobs that are older than the list and missing in it."""
        if resource != self._jobs.resource:
            return
        for memory in self._memories.values():
            if memory.name not in names and memory.removed_s is None and memory.made_s < begun_s:
                self._seek(memory)

    def _seek(self, memory: JobMemory) -> None:
        if memory.name not in self._seeking and memory.removed_s is None:
            self._seeking[memory.name] = asyncio.create_task(self._find(memory), name=f"look for {memory.name}")

    async def _find(self, memory: JobMemory) -> None:
        """Queries a job by name: it is gone if the server says so twice, as a list or an answer may come from a stale
        server."""
        missed = 0
        while missed < _MISSED_TWICE:
            try:
                if await self._jobs.find(memory.name):
                    break
                missed += 1
            except (PlatformError, Refusal):
                missed = 0
            except Exception:  # an invalid answer counts as none
                log.exception("the cluster's answer about %s is invalid; asking again", memory.name)
                missed = 0
            if missed < _MISSED_TWICE:
                await asyncio.sleep(_MISSING_AGAIN_S)
        self._seeking.pop(memory.name, None)
        listed = self._jobs.objects.get(memory.name)
        if listed is None or not _is_same(memory, listed):
            self._remove(memory, was_seen=False)

    def _remove(self, memory: JobMemory, *, was_seen: bool = True) -> None:
        memory.removed_s = asyncio.get_running_loop().time()
        memory.was_deleted = was_seen
        self._tell(memory)

    def _put_event(self, event: Object) -> JobMemory | None:
        """Adds an event to its job, or to the job of its pod by name; None: it concerns no job of ours."""
        name = about(event)
        memory = self._memories.get(name)
        while memory is None and "-" in name:
            name = name.rpartition("-")[0]
            memory = self._memories.get(name)
        if memory is not None and memory.final is None:
            memory.events[event["metadata"]["name"]] = event
            while len(memory.events) > _MOST_EVENTS:
                del memory.events[next(iter(memory.events))]
        return memory

    def _put_workload(self, workload: Object | None) -> JobMemory | None:
        """Adds Kueue's object to its job; None: it concerns no job of ours."""
        memory = self._memories.get(_owner(workload)) if workload is not None else None
        labels = ((workload or {}).get("metadata") or {}).get("labels") or {}
        if memory is None or memory.uid not in ("", labels.get(WORKLOAD_JOB)):
            return None
        memory.workload = workload
        return memory

    def _put_pod(self, pod: Object) -> None:
        self._pods_of.setdefault(_label(pod), {})[pod["metadata"]["name"]] = pod

    def _drop_pod(self, pod: Object) -> None:
        pods = self._pods_of.get(_label(pod), {})
        pods.pop(pod["metadata"]["name"], None)
        if not pods:
            self._pods_of.pop(_label(pod), None)

    def _tell(self, memory: JobMemory | None) -> None:
        if memory is not None:
            self.on_change(memory)
            self._wake(memory.job_name)


def _label(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(JOB) or "")


def _owner(workload: Object) -> str:
    owners = workload["metadata"].get("ownerReferences") or ()
    return next((str(one["name"]) for one in owners), "")


def _is_same(memory: JobMemory, found: Object) -> bool:
    return memory.uid in ("", found["metadata"].get("uid"))


class EventIndex:
    """An index of events. A cluster keeps an hour of them, too many for each of hundreds of jobs to search."""

    def __init__(self, events: Iterable[Object]) -> None:
        #: (name of the object that it concerns, its own name), in order.
        self._keys: list[tuple[str, str]] = []
        self._events: dict[str, Object] = {}
        for event in events:
            self.put(event)

    def put(self, event: Object) -> None:
        """Adds or updates an event; a reused name may concern another object."""
        name = str(event["metadata"]["name"])
        if (known := self._events.get(name)) is not None and about(known) != about(event):
            self.drop(known)
        if name not in self._events:
            insort(self._keys, (about(event), name))
        self._events[name] = event

    def drop(self, event: Object) -> None:
        name = str(event["metadata"]["name"])
        if (known := self._events.pop(name, None)) is not None:
            del self._keys[bisect_left(self._keys, (about(known), name))]

    def of_job(self, name: str) -> Iterator[Object]:
        """The events about a job and objects named after it, such as its pods: ``{name}-…``.

        A hyphen sorts before all other characters of names, so these events directly follow the job's own.
        """
        for at in range(bisect_left(self._keys, (name, "")), len(self._keys)):
            whose, event = self._keys[at]
            if whose != name and not whose.startswith(f"{name}-"):
                return
            yield self._events[event]


def about(event: Object) -> str:
    """The name of the object that an event concerns; empty: none."""
    return str((event.get("involvedObject") or {}).get("name") or "")
