"""The ways by which results come where runners do not post them: out of storage that is mounted here, or out of
pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Protocol

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.kubernetes.api.client import Object, Refusal
from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.api.names import PODS
from nni_manager.kubernetes.exec.channel import ExecChannel
from nni_manager.kubernetes.exec.channel_selection import runner_container
from nni_manager.kubernetes.exec.stream import execute
from nni_manager.kubernetes.jobs.cluster_objects import ClusterObjects
from nni_manager.kubernetes.jobs.job_memory import JobMemory
from nni_manager.kubernetes.jobs.pod import RUNNER_FILE, RUNNER_MOUNT
from nni_manager.platform_kit.contract import Host
from nni_manager.shared_storage.pull import Pull
from trial_runner import protocol

#: Seconds for which the end of a job waits for its files on the storage.
_PATIENCE_S = 2.0
#: Seconds that a command in a pod may take; the code goes through it.
_COMMAND_S = 600.0


class ResultReader(Protocol):
    """The reading of one service's results."""

    def follow(self, memory: JobMemory, attempt_directory: str) -> None:
        """Begins to read a job's results; idempotent. `attempt_directory`: the folder to which its logs are copied."""

    def notice(self, memory: JobMemory) -> None:
        """Notes that a job's object or its pods have changed."""

    def seen(self, memory: JobMemory, report: Observation) -> Observation:
        """The report to give now: an end is held back until all results are read."""

    def forget(self, memory: JobMemory) -> None:
        """Stops reading a job's results. Quiet for a job that is not followed."""

    async def close(self) -> None:
        """Stops reading anything."""


def reading(service: ClusterObjects, cluster: Cluster, host: Host, *, sends_code: bool) -> ResultReader | None:
    """The reading of a service's results; None: runners post them."""
    if service.channel in (protocol.EXEC, protocol.PUSH_OR_EXEC):
        run = partial(_execute, cluster)
        return ExecChannel(host, run, service.record, service.note_chosen, sends_code=sends_code)
    return _FromStorage(service, host) if service.storage is not None else None


class _FromStorage:
    def __init__(self, service: ClusterObjects, host: Host) -> None:
        self._service = service
        self._pull = Pull(host)
        self._task = asyncio.create_task(self._pull.run(), name=f"pull {host.experiment_id}")

    def follow(self, memory: JobMemory, attempt_directory: str) -> None:
        folder = self._service.folder(attempt_directory)
        if folder is not None:
            self._pull.follow(memory.job_name, folder.here, Path(attempt_directory))

    def notice(self, memory: JobMemory) -> None:
        """Does nothing: running jobs write results without help."""

    def seen(self, memory: JobMemory, report: Observation) -> Observation:
        if self._task.done():
            self._task.result()  # a fault of ours, which must not go unseen
        if not report.state.is_final or memory.all_pods == []:
            return report
        self._pull.finish(memory.job_name, _PATIENCE_S)
        if self._pull.is_over(memory.job_name):
            return report
        return Observation(state=JobState.RUNNING, started_ms=report.started_ms, place=report.place)

    def forget(self, memory: JobMemory) -> None:
        self._pull.forget(memory.job_name)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def _execute(cluster: Cluster, pod: Object, verb: str, stdin: AsyncIterator[bytes]) -> bytes:
    """What a command in a pod says, with a second try when credentials have expired."""
    path = PODS.path(cluster.namespace, pod["metadata"]["name"])
    command = ["python3", f"{RUNNER_MOUNT}/{RUNNER_FILE}", verb]
    container = str(runner_container(pod).get("name") or "")
    client = await cluster.client()
    try:
        return await execute(client, path, container, command, stdin, _COMMAND_S)
    except Refusal as refusal:
        if refusal.status != 401:
            raise
    await cluster.renew(client)  # refused before anything was sent
    return await execute(await cluster.client(), path, container, command, stdin, _COMMAND_S)
