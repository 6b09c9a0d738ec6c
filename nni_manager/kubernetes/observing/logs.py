"""The output of a job's pods, as the cluster keeps it."""

from __future__ import annotations

from nni_manager.domain.errors import NotFound, PlatformUnavailable
from nni_manager.kubernetes.api.client import Refusal
from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.api.names import PODS
from nni_manager.kubernetes.jobs.job_memory import JobMemory
from trial_runner import protocol

#: Bytes of a pod's log that are read at most.
_MOST = 64 * 1024 * 1024


async def read_stretch(cluster: Cluster, memory: JobMemory, name: str, offset: int, limit: int) -> bytes:
    """A stretch of a pod's log, as `Platform.read_file`; pods have one stream for all that is printed."""
    if name != protocol.STDOUT_FILE or not memory.pods:
        raise NotFound(f"job {memory.job_name} has no {name} in the cluster")
    data = await read(cluster, memory)
    return data[offset : offset + limit] if offset >= 0 else data[offset:][:limit]


async def read(cluster: Cluster, memory: JobMemory) -> bytes:
    """The log of the pod that reports. Raises NotFound and PlatformUnavailable."""
    pod = memory.reporter()
    if pod is None:
        raise NotFound(f"job {memory.job_name} has no pod in the cluster")
    path = PODS.path(cluster.namespace, pod) + "/log"
    client = await cluster.client()
    try:
        return await client.read("GET", path, query=[("container", memory.container), ("limitBytes", str(_MOST))])
    except Refusal as refusal:
        if _is_lasting(refusal):
            raise NotFound(f"pod {pod} has no log: {refusal.message}") from None
        raise PlatformUnavailable(f"the log of pod {pod} cannot be read: {refusal}") from None


def _is_lasting(refusal: Refusal) -> bool:
    """Whether a refusal lasts, so that waiting for the log is pointless.

    The container has not begun or is gone, the right is not granted, or the node does not answer.
    """
    return refusal.status in (400, 403, 404) or "containerLogs" in refusal.message
