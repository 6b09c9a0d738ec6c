"""Creating a job's object, whether or not an earlier call has done it already."""

from __future__ import annotations

from collections.abc import Mapping

from nni_manager.domain.errors import PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api import names
from nni_manager.kubernetes.api.client import Object, Refusal
from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.api.names import Resource
from nni_manager.kubernetes.jobs.cluster_objects import ClusterObjects


def body(
    resource: Resource, manifest: Object, spec: JobSpec, name: str, namespace: str, labels: Mapping[str, str]
) -> Object:
    """The whole object of a job, with kind, name and labels."""
    metadata: Object = {
        **manifest.get("metadata", {}),
        "name": name,
        "namespace": namespace,
        "labels": dict(labels),
        "annotations": {names.DOCUMENTED_NAME: spec.name},
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, **manifest, "metadata": metadata}


async def find_own(
    cluster: Cluster, resource: Resource, name: str, labels: Mapping[str, str], spec: JobSpec
) -> Object | None:
    """The job's object, if it is there. Raises SubmitRejected for a foreign object of that name, and Refusal."""
    found = await cluster.find(resource, name)
    if found is None or names.is_ours(found, labels, spec.name):
        return found
    meta = found["metadata"]
    raise SubmitRejected(
        f"{found.get('kind')} {meta['name']} is there already in namespace {meta.get('namespace')}, and is none of "
        "this experiment's; remove it, or use another namespace"
    )


async def create(
    cluster: Cluster, resource: Resource, whole: Object, spec: JobSpec, service: ClusterObjects
) -> tuple[Object, bool]:
    """Creates a job's object; answers it and whether it is new. Raises Refusal, SubmitRejected, PlatformUnavailable."""
    meta = whole["metadata"]
    await service.prepare_job(spec)
    try:
        return await cluster.create(resource, whole), True
    except Refusal as refusal:
        if not refusal.is_there:
            raise
    found = await find_own(cluster, resource, meta["name"], meta["labels"], spec)
    if found is None:
        raise PlatformUnavailable(f"{resource.kind} {meta['name']} was just removed; it is created again", refused=True)
    return found, False
