"""Logs of containers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from tests.fakes.kubernetes import refusals, requests
from tests.fakes.kubernetes.kinds import PODS
from tests.fakes.kubernetes.kubelet.containers import log_file
from tests.fakes.kubernetes.kubelet.times import Times
from tests.fakes.kubernetes.requests import Target
from tests.fakes.kubernetes.store import Object

if TYPE_CHECKING:
    from tests.fakes.kubernetes.cluster import Cluster

_LOOK_S = 0.03
_PIECE = 64 * 1024


class Logs:
    """Of all pods of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def answer(self, request: web.Request, target: Target) -> web.StreamResponse:
        pod = self._cluster.verbs.get(PODS, target.namespace, target.name)
        container = self._container(pod, request.query.get("container", ""))
        path, status = self._file(pod, container, requests.flag(request, "previous"))
        self._require_started(container, status)
        follow = requests.flag(request, "follow")
        data, end = self._start(request, path)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        if follow:
            response.enable_chunked_encoding()
        await response.prepare(request)
        limit = requests.whole(request, "limitBytes")
        times = Times(path) if requests.flag(request, "timestamps") else None
        sent = await self._write(response, data, limit, 0, times)
        if follow:
            await self._follow(response, target, pod, container, path, end, limit, sent, times)
        await response.write_eof()
        return response

    def _container(self, pod: Object, name: str) -> str:
        names = [each["name"] for part in ("containers", "initContainers") for each in pod["spec"].get(part) or []]
        pod_name = pod["metadata"]["name"]
        if not name and len(pod["spec"]["containers"]) > 1:
            told = " ".join(each["name"] for each in pod["spec"]["containers"])
            raise refusals.bad_request(
                f"a container name must be specified for pod {pod_name}, choose one of: [{told}]"
            )
        if name and name not in names:
            raise refusals.bad_request(f"container {name} is not valid for pod {pod_name}")
        return name or names[0]

    def _file(self, pod: Object, container: str, previous: bool) -> tuple[Path, Object]:
        status = self._status(pod, container)
        restarts = status.get("restartCount", 0)
        waiting_again = restarts > 0 and "waiting" in status.get("state", {})
        if previous:
            if not restarts:
                told = f'previous terminated container "{container}" in pod "{pod["metadata"]["name"]}" not found'
                raise refusals.bad_request(told)
            restarts -= 1
        elif waiting_again:
            restarts -= 1
        return log_file(self._cluster.pod_folder(pod["metadata"]["uid"]), container, restarts), status

    def _status(self, pod: Object, container: str) -> Object:
        status = pod.get("status") or {}
        told = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
        return next((each for each in told if each["name"] == container), {})

    def _require_started(self, container: str, status: Object) -> None:
        waiting = status.get("state", {}).get("waiting")
        if not status or (waiting is not None and not status.get("restartCount")):
            reason = (waiting or {}).get("reason", "ContainerCreating")
            told = f'container "{container}" in pod is waiting to start: {reason}'
            raise refusals.bad_request(told)

    def _start(self, request: web.Request, path: Path) -> tuple[bytes, int]:
        """The current log, and the offset of its end."""
        data = path.read_bytes() if path.exists() else b""
        end = len(data)
        since = requests.whole(request, "sinceSeconds")
        if request.query.get("sinceTime") or since is not None:
            data = Times(path).since(data, request.query.get("sinceTime", ""), since)
        tail = requests.whole(request, "tailLines")
        if tail is not None:
            data = b"".join(data.splitlines(keepends=True)[-tail:]) if tail else b""
        return data, end

    async def _follow(
        self,
        response: web.StreamResponse,
        target: Target,
        pod: Object,
        container: str,
        path: Path,
        at: int,
        limit: int | None,
        sent: int,
        times: Times | None,
    ) -> None:
        """Follow the log until the container has ended and everything is sent."""
        breaks = self._cluster.log_breaks
        with path.open("rb") as file:  # stays readable after the pod's folder is removed
            file.seek(at)
            while limit is None or sent < limit:
                over = self._is_over(target, pod, container, path)
                if data := file.read(_PIECE):
                    sent = await self._write(response, data, limit, sent, times)
                elif over or self._cluster.log_breaks != breaks:
                    return
                else:
                    await asyncio.sleep(_LOOK_S)

    def _is_over(self, target: Target, pod: Object, container: str, path: Path) -> bool:
        now = self._cluster.verbs.find(PODS, target.namespace, target.name)
        if now is None or now["metadata"]["uid"] != pod["metadata"]["uid"]:
            return True
        status = self._status(now, container)
        return int(path.stem) != status.get("restartCount", 0) or "terminated" in status.get("state", {})

    async def _write(
        self, response: web.StreamResponse, data: bytes, limit: int | None, sent: int, times: Times | None
    ) -> int:
        if times is not None:
            data = times.stamped(data)
        if limit is not None:
            data = data[: limit - sent]
        for start in range(0, len(data), _PIECE):
            await response.write(data[start : start + _PIECE])
        return sent + len(data)
