"""Ends and removes jobs, and finds leftovers of experiments in the namespace, also of other managers.

Each job takes a call or two, and an experiment may have hundreds at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nni_manager.domain.clock import milliseconds
from nni_manager.kubernetes.api import names
from nni_manager.kubernetes.api.client import Object, Refusal
from nni_manager.kubernetes.api.cluster import Cluster, Kind
from nni_manager.kubernetes.api.names import CONFIG_MAPS, PODS, SECRETS, Resource
from nni_manager.kubernetes.jobs.job_memory import JobMemory
from nni_manager.platform_kit.contract import LeftObject

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Maximum number of concurrent calls.
_AT_ONCE = 4


async def end(cluster: Cluster, kind: Kind, resource: Resource, memories: Iterable[JobMemory]) -> None:
    """Asks running jobs to end. Raises Refusal."""

    async def end_one(memory: JobMemory) -> None:
        if memory.final is None and memory.object is not None and memory.removed_s is None:
            answer = await kind.end(cluster, resource, memory.name, memory.uid)
            memory.is_cancelled = True
            await _end_pods_of_kept(cluster, answer)

    await _each(memories, end_one)


async def _end_pods_of_kept(cluster: Cluster, job: Object) -> None:
    """Ends the pods of a deleted job that a finalizer keeps: its operator ignores it, and they would run on.

    `job`: the answer to the deletion. Raises Refusal.
    """
    meta = job.get("metadata") or {}
    if not (meta.get("deletionTimestamp") and meta.get("finalizers")):
        return
    name = meta["name"]
    try:
        for pod in await cluster.list(PODS, names.selector({names.JOB: name})):
            await cluster.delete(PODS, pod["metadata"]["name"], uid=pod["metadata"].get("uid", ""))
    except Refusal as refusal:
        if refusal.status != 403:
            raise
        log.warning("job %s: a finalizer keeps its object, and its pods may not be deleted: %s", name, refusal)


async def remove(cluster: Cluster, resource: Resource, memories: Iterable[JobMemory]) -> None:
    """Removes jobs and the objects that they own. Ignores missing ones. Raises Refusal."""

    async def remove_one(memory: JobMemory) -> None:
        await _end_pods_of_kept(cluster, await cluster.delete(resource, memory.name, uid=memory.uid))

    await _each(memories, remove_one)


async def clean(cluster: Cluster, resource: Resource, labels: dict[str, str], job_names: frozenset[str] | None) -> None:
    """Removes jobs with these labels, of any process; `job_names` None: all. Raises Refusal."""

    async def clean_one(found: Object) -> None:
        meta = found["metadata"]
        name = (meta.get("annotations") or {}).get(names.DOCUMENTED_NAME)
        if job_names is None or name in job_names:
            await _end_pods_of_kept(cluster, await cluster.delete(resource, meta["name"], uid=meta.get("uid", "")))

    await _each(await cluster.list(resource, names.selector(labels)), clean_one)


async def _each(things: Iterable[T], do: Callable[[T], Awaitable[None]]) -> None:
    """Awaits a call for each item, a few at a time.

    Raises the first error after all calls have ended.
    """
    left = iter(things)

    async def work() -> None:
        for thing in left:
            await do(thing)

    for outcome in await asyncio.gather(*(work() for _ in range(_AT_ONCE)), return_exceptions=True):
        if outcome is not None:
            raise outcome


# Objects of experiments of any manager in the namespace, found by label

_OTHER_KIND = "pods of another kind of job may need it; use a config of that kind"


@dataclass(frozen=True, slots=True)
class Found:
    """An object with our labels."""

    resource: Resource
    name: str
    uid: str
    told: LeftObject


async def find(cluster: Cluster, resource: Resource | None, at_work: Collection[str]) -> Sequence[Found]:
    """Jobs of this kind, Secrets and ConfigMaps of experiments that are not `at_work`, jobs first. `resource` None: the
    cluster lacks the kind. Raises Refusal."""
    kinds = [kind for kind in (resource, SECRETS, CONFIG_MAPS) if kind is not None]
    listed = [(kind, one) for kind in kinds for one in await cluster.list(kind, names.EXPERIMENT)]
    jobs = {one["metadata"]["name"] for kind, one in listed if kind == resource}
    pods = await cluster.list(PODS, names.EXPERIMENT)
    others = [pod for pod in pods if pod["metadata"].get("ownerReferences") and _label(pod, names.JOB) not in jobs]
    of_others = {_label(pod, names.EXPERIMENT) for pod in others}
    kept = set(map(names.label, at_work))
    return [_found(kind, one, of_others) for kind, one in listed if _label(one, names.EXPERIMENT) not in kept]


def _found(resource: Resource, found: Object, of_others: Collection[str]) -> Found:
    meta, experiment = found["metadata"], _label(found, names.EXPERIMENT)
    told = LeftObject(
        experiment_id=experiment,
        manager=_label(found, names.MANAGER),
        what=f"{resource.kind} {meta['name']}",
        created_ms=milliseconds(meta.get("creationTimestamp")),
        stays=_OTHER_KIND if experiment in of_others else "",
    )
    return Found(resource, meta["name"], meta["uid"], told)


def _label(found: Object, name: str) -> str:
    return str((found["metadata"].get("labels") or {}).get(name) or "")
