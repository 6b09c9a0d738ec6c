"""Commands in running containers, over a WebSocket: the channel protocols of version 4 and 5."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web

from tests.fakes.kubernetes import refusals, requests
from tests.fakes.kubernetes.kinds import PODS
from tests.fakes.kubernetes.requests import Target
from tests.fakes.kubernetes.store import Object

if TYPE_CHECKING:
    from tests.fakes.kubernetes.cluster import Cluster

STDIN, STDOUT, STDERR, ERROR, _RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")


class Execs:
    """Of all pods of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: set[web.WebSocketResponse] = set()

    async def break_all(self) -> None:
        """Cut all connections; their processes end."""
        for socket in list(self._open):
            await socket.close(code=1011)

    async def answer(self, request: web.Request, target: Target) -> web.StreamResponse:
        pod = self._cluster.verbs.get(PODS, target.namespace, target.name)
        spec = self._running(pod, request.query.get("container", ""))
        argv = request.query.getall("command", [])
        if not argv:
            raise refusals.bad_request("you must specify at least 1 command for the container")
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise refusals.bad_request("Upgrade request required")
        socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=0)
        await socket.prepare(request)
        self._open.add(socket)
        try:
            await self._run(socket, request, pod, spec, argv)
        finally:
            self._open.discard(socket)
        return socket

    def _running(self, pod: Object, name: str) -> Object:
        specs = pod["spec"]["containers"]
        spec = next((each for each in specs if each["name"] == name), specs[0] if not name else None)
        if spec is None:
            raise refusals.bad_request(f"container {name} is not valid for pod {pod['metadata']['name']}")
        statuses = pod.get("status", {}).get("containerStatuses") or []
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            told = f"cannot exec into a container in a completed pod; current phase is {pod['status']['phase']}"
            raise refusals.Refused(500, "InternalError", told)
        if not any(each["name"] == spec["name"] and "running" in each["state"] for each in statuses):
            raise refusals.Refused(
                500, "InternalError", f'unable to upgrade connection: container not found ("{spec["name"]}")'
            )
        return spec

    async def _run(
        self, socket: web.WebSocketResponse, request: web.Request, pod: Object, spec: Object, argv: list[str]
    ) -> None:
        try:
            process = await self._start(pod, spec, argv, requests.flag(request, "stdin"))
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            await self._tell(socket, _failed_to_start(str(error)))
            return
        outputs = [
            asyncio.create_task(_forward(socket, process.stdout, STDOUT)),
            asyncio.create_task(_forward(socket, process.stderr, STDERR)),
        ]
        reading = asyncio.create_task(self._read(socket, process))
        ended = asyncio.create_task(_ended(process, outputs))
        try:
            await asyncio.wait([reading, ended], return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not ended.done():
                _kill(process)  # the client has disconnected
            code = await ended
            await self._tell(socket, _exited(code))
        finally:
            _kill(process)
            for task in (*outputs, reading, ended):
                task.cancel()
            await asyncio.gather(*outputs, reading, ended, return_exceptions=True)

    async def _start(self, pod: Object, spec: Object, argv: list[str], stdin: bool) -> asyncio.subprocess.Process:
        life = self._cluster.nodes.life(pod)
        if life is None or life.starter is None:
            raise FileNotFoundError("container not found")
        command = life.starter.command(pod, spec, argv, life.folder / "exec.log")
        folder = {"CONTAINER_FOLDER": str(life.folder / spec["name"] / f"run{self._restarts(pod, spec)}")}
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            *command.argv,
            env={**command.environment, **folder},
            cwd=command.working_folder,
            stdin=pipe if stdin else null,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )

    def _restarts(self, pod: Object, spec: Object) -> int:
        told = pod["status"].get("containerStatuses") or []
        return next((each["restartCount"] for each in told if each["name"] == spec["name"]), 0)

    async def _read(self, socket: web.WebSocketResponse, process: asyncio.subprocess.Process) -> None:
        """Forward input until the client disconnects."""
        async for message in socket:
            if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
                continue
            data = message.data if isinstance(message.data, bytes) else message.data.encode()
            if not data or process.stdin is None:
                continue
            if data[0] == STDIN and not process.stdin.is_closing():
                with suppress(ConnectionError):
                    process.stdin.write(data[1:])
                    await process.stdin.drain()
            elif data[0] == CLOSE and socket.ws_protocol == PROTOCOLS[0] and data[1:2] == bytes([STDIN]):
                process.stdin.close()

    async def _tell(self, socket: web.WebSocketResponse, status: dict[str, Any]) -> None:
        with suppress(ConnectionError):
            await socket.send_bytes(bytes([ERROR]) + json.dumps(status).encode())
            await socket.close()


async def _forward(socket: web.WebSocketResponse, stream: asyncio.StreamReader | None, channel: int) -> None:
    assert stream is not None
    with suppress(ConnectionError):
        while data := await stream.read(32 * 1024):
            await socket.send_bytes(bytes([channel]) + data)


async def _ended(process: asyncio.subprocess.Process, outputs: list[asyncio.Task[None]]) -> int:
    code = await process.wait()
    await asyncio.wait(outputs, timeout=5)
    return code if code >= 0 else 128 - code


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _exited(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: exit status {code}"
    details = {"causes": causes}
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode", "details": details}


def _failed_to_start(why: str) -> dict[str, Any]:
    """A real runtime reports this as an InternalError without an exit code."""
    message, details = f"Internal error occurred: {why}", {"causes": [{"message": why}]}
    return {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "InternalError",
        "details": details,
        "code": 500,
    }
