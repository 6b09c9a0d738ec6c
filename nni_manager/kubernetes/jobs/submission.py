"""Creates a job's object, or finds the one of an earlier call; its handle; and refusals as the scheduler's errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache

from nni_manager.domain.errors import BadCredentials, PlatformError, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.kubernetes.api import names
from nni_manager.kubernetes.api.client import NO_RIGHT, Object, Refusal
from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.api.names import Resource
from nni_manager.kubernetes.jobs.cluster_objects import ClusterObjects


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleData:
    """The content of `JobHandle.data`."""

    #: Name and uid of the job's object.
    name: str
    uid: str
    #: The attempt's folder, below the experiment's.
    folder: str = ""
    #: The address of the job's files, for users.
    link: str = ""


@lru_cache(maxsize=4096)
def data_of(handle: JobHandle) -> HandleData:
    """The content of a handle; cached, as every observation reads it."""
    return HandleData(**json.loads(handle.data))


def handle(platform: str, spec: JobSpec, created: Object, link: str) -> JobHandle:
    """The handle of a job. `created`: its object, as the server returned it; `link`: as in `HandleData`."""
    meta = created["metadata"]
    content = HandleData(name=meta["name"], uid=meta.get("uid", ""), folder=spec.attempt_directory, link=link)
    return JobHandle(platform=platform, version=1, job_name=spec.name, data=json.dumps(asdict(content)))


def body(
    resource: Resource, manifest: Object, spec: JobSpec, name: str, namespace: str, labels: Mapping[str, str]
) -> Object:
    """The whole object of a job, with kind, name and labels; labels and annotations of the manifest stay."""
    given = manifest.get("metadata", {})
    metadata: Object = {
        **given,
        "name": name,
        "namespace": namespace,
        "labels": {**given.get("labels", {}), **labels},
        "annotations": {**given.get("annotations", {}), names.DOCUMENTED_NAME: spec.name},
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, **manifest, "metadata": metadata}


async def find_own(
    cluster: Cluster, resource: Resource, name: str, labels: Mapping[str, str], spec: JobSpec
) -> Object | None:
    """The job's object, if it exists. Raises SubmitRejected for a foreign object of that name, and Refusal."""
    found = await cluster.find(resource, name)
    if found is None or names.is_ours(found, labels, spec.name):
        return found
    meta = found["metadata"]
    raise SubmitRejected(
        f"{found.get('kind')} {meta['name']} already exists in namespace {meta.get('namespace')} and does not belong to"
        " this experiment; remove it, or use another namespace"
    )


async def create(
    cluster: Cluster, resource: Resource, whole: Object, spec: JobSpec, service: ClusterObjects
) -> tuple[Object, bool]:
    """Creates a job's object; returns it and whether it is new. Raises Refusal, SubmitRejected, PlatformUnavailable."""
    meta = whole["metadata"]
    await service.prepare_job(spec)
    try:
        return await cluster.create(resource, whole), True
    except Refusal as refusal:
        if not refusal.is_there:
            raise
    found = await find_own(cluster, resource, meta["name"], meta["labels"], spec)
    if found is None:
        raise PlatformUnavailable(f"{resource.kind} {meta['name']} was just removed; creating it again", refused=True)
    return found, False


_QUOTA = re.compile(r"exceeded quota", re.IGNORECASE)
_ENDING = re.compile(r"being terminated", re.IGNORECASE)
#: Denials by webhooks and policies, which check the object and choose the status: usually 403.
_DENIED = re.compile(r"denied (the )?request|\[denied by", re.IGNORECASE)


def quota(refusal: Refusal) -> Wait | None:
    """The wait reason if a quota is used up; None: any other refusal."""
    if refusal.status == 403 and _QUOTA.search(refusal.message):
        return Wait(code=WaitCode.QUOTA, sentence=refusal.message)
    return None


def error(refusal: Refusal, doing: str, namespace: str) -> PlatformError:
    """The error for a refusal. `doing`: the refused operation, e.g. ``create tfjobs``."""
    if refusal.status in (400, 413, 422) or _DENIED.search(refusal.message):
        return SubmitRejected(f"the cluster rejected it: {refusal.message}")
    if refusal.status == 401:
        return BadCredentials(f"the cluster refuses the credentials ({refusal}); log in again")
    if refusal.status == 403 and not _ENDING.search(refusal.message):
        return BadCredentials(f"the account may not {doing} in namespace {namespace} ({refusal.message}); {NO_RIGHT}")
    if refusal.status == 404:
        return PlatformUnavailable(
            f"cannot {doing} in namespace {namespace} ({refusal.message}): the namespace or the kind does not exist",
            refused=True,
        )
    return PlatformUnavailable(f"the cluster cannot {doing} now ({refusal})", refused=refusal.status < 500)
