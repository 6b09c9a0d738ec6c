"""Runs a command in a pod through the cluster's API: input, output, exit status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.kubernetes.api.client import Client

#: Meanings of the first byte of a message.
_STDIN, _STDOUT, _STDERR, _STATUS = range(4)
_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_MOST_STDERR = 2048


class ExecFailed(Exception):
    """A command in a pod failed: nonzero exit code, or it could not start."""


async def execute(
    client: Client, path: str, container: str, command: Sequence[str], stdin: AsyncIterator[bytes], limit_s: float
) -> bytes:
    """Runs a command in a pod's container; returns its stdout. `path`: the pod's.

    The command must detect the end of stdin from its content. Raises ExecFailed, PlatformUnavailable and Refusal.
    """
    query = [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    try:
        async with asyncio.timeout(limit_s), client.websocket(f"{path}/exec", query, _PROTOCOLS) as socket:
            sending = asyncio.create_task(_send(socket, stdin))
            try:
                return await _receive(socket)
            finally:
                sending.cancel()
                await asyncio.wait([sending])
    except TimeoutError:
        raise PlatformUnavailable(f"a command in {path} did not end within {limit_s:g} s") from None


async def _send(socket: Any, stdin: AsyncIterator[bytes]) -> None:
    async for data in stdin:
        await socket.send_bytes(bytes([_STDIN]) + data)


async def _receive(socket: Any) -> bytes:
    out, err, status = bytearray(), bytearray(), b""
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == _STDOUT:
            out += data
        elif channel == _STDERR:
            err += data[: _MOST_STDERR - len(err)]
        elif channel == _STATUS:
            status += data
    _check(status, err.decode(errors="replace"))
    return bytes(out)


def _check(status: bytes, stderr: str) -> None:
    """Raises ExecFailed unless the status is success, and PlatformUnavailable without a status: the call broke off."""
    try:
        told = json.loads(status)
    except ValueError:
        raise PlatformUnavailable("the connection to a command in a pod broke off") from None
    if told.get("status") != "Success":
        raise ExecFailed("; ".join(filter(None, (str(told.get("message") or ""), stderr.strip()))))
