"""Whether pods of a cluster reach this machine: unknown before one has tried. Pods that may choose find it out."""

from __future__ import annotations

import asyncio
import logging
import socket
from urllib.parse import urlsplit

from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.api.names import PODS, SECRETS
from trial_runner import protocol

log = logging.getLogger(__name__)

#: Seconds for which no pod tries after one has tried in vain: each would lose time over it.
_TRY_AGAIN_S = 600.0


class Reach:
    """What one service knows of whether pods reach this machine."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._may_exec = True
        self._out_of_reach_until_s = float("-inf")
        #: This machine's address as the cluster sees it, by the routes; empty: unknown.
        self.own_address = ""

    async def look(self) -> None:
        """Checks rights and routes, once, before the first job. Raises Refusal and PlatformUnavailable."""
        self._may_exec = await may_exec(self._cluster)
        if not self._may_exec:
            log.warning("commands in pods are not allowed (pods/exec): results come only where pods reach this machine")
        host = (await self._cluster.client()).host
        self.own_address = await asyncio.to_thread(_address_towards, host)

    def channel(self) -> str:
        """The channel for the next job."""
        if not self._may_exec:
            return protocol.PUSH
        is_out_of_reach = asyncio.get_running_loop().time() < self._out_of_reach_until_s
        return protocol.EXEC if is_out_of_reach else protocol.PUSH_OR_EXEC

    def note(self, channel: str) -> None:
        """Notes the channel that a pod has chosen."""
        if channel == protocol.EXEC:
            log.info("a pod did not reach the trial listener: results come through the cluster's API")
            self._out_of_reach_until_s = asyncio.get_running_loop().time() + _TRY_AGAIN_S


async def may_exec(cluster: Cluster) -> bool:
    """Whether we may run commands in pods and read Secrets, where the parameters lie.

    Commands go by a websocket, which begins as a GET, and for which Kubernetes 1.35 and later ask the right to create,
    too.
    """
    return (
        await cluster.may("get", PODS, "exec")
        and await cluster.may("create", PODS, "exec")
        and await cluster.may("get", SECRETS)
    )


def _address_towards(host: str) -> str:
    """This machine's address on the route to the cluster's API; empty where pods cannot use it. Sends no packet."""
    parts = urlsplit(host)
    try:
        family, _, _, _, address = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            found = str(probe.getsockname()[0])
    except OSError:
        return ""
    return "" if found.startswith("127.") or found == "::1" or "%" in found else found
