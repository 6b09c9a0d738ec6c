"""Objects of experiments of any manager in the namespace: found by their labels, and removed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from nni_manager.kubernetes.api import names
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.api.names import CONFIG_MAPS, PODS, SECRETS, Resource
from nni_manager.platform_kit.contract import LeftObject

_OTHER_KIND = "it has pods of another kind of job, which may need this; give a config of that kind"


@dataclass(frozen=True, slots=True)
class Found:
    """An object with our labels. `stays`: as of `LeftObject`."""

    resource: Resource
    object: Object
    stays: str

    def told(self) -> LeftObject:
        meta = self.object["metadata"]
        return LeftObject(
            experiment_id=_label(self.object, names.EXPERIMENT),
            manager=_label(self.object, names.MANAGER),
            what=f"{self.resource.kind} {meta['name']}",
            created_ms=_created_ms(self.object),
            stays=self.stays,
        )


async def find(cluster: Cluster, resource: Resource | None, at_work: Collection[str]) -> Sequence[Found]:
    """Jobs of this kind, Secrets and ConfigMaps of experiments that are not `at_work`. `resource` None: the cluster has
    no such kind. Raises Refusal."""
    kinds = [kind for kind in (resource, SECRETS, CONFIG_MAPS) if kind is not None]
    listed = [(kind, one) for kind in kinds for one in await cluster.list(kind, names.EXPERIMENT)]
    jobs = {one["metadata"]["name"] for kind, one in listed if kind == resource}
    of_others = set(_with_other_jobs(await cluster.list(PODS, names.EXPERIMENT), jobs))
    kept = set(map(names.label, at_work))
    return [
        Found(kind, one, _OTHER_KIND if experiment in of_others else "")
        for kind, one in listed
        if (experiment := _label(one, names.EXPERIMENT)) not in kept
    ]


async def remove(cluster: Cluster, found: Sequence[Found]) -> None:
    """Removes these objects by uid, jobs first; a newer object of the same name stays. Raises Refusal."""
    for one in found:
        meta = one.object["metadata"]
        await cluster.delete(one.resource, meta["name"], uid=meta["uid"])


def _with_other_jobs(pods: Sequence[Object], jobs: Collection[str]) -> Iterator[str]:
    """The experiments of pods that belong to jobs which are not among these."""
    for pod in pods:
        if pod["metadata"].get("ownerReferences") and _label(pod, names.JOB) not in jobs:
            yield _label(pod, names.EXPERIMENT)


def _label(found: Object, name: str) -> str:
    return str((found["metadata"].get("labels") or {}).get(name) or "")


def _created_ms(found: Object) -> int | None:
    try:
        return int(datetime.fromisoformat(found["metadata"]["creationTimestamp"]).timestamp() * 1000)
    except (KeyError, TypeError, ValueError):
        return None
