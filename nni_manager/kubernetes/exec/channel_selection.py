"""The choice of a channel by the pods of a job: push if they reach this machine, else exec.

Each pod that may choose tries for a few seconds to reach this machine. If a pod runs longer, a command in it reads the
choice once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from nni_manager.kubernetes.api.client import Object
from trial_runner import protocol

#: Seconds until a running pod has tried, and between two queries of a pod that has not.
_TRIED_S = 6.0
_AGAIN_S = 2.0

#: Pod → its runner's choice: push, exec, or empty while it tries.
Ask = Callable[[Object], Awaitable[str]]


class Choices:
    """The channels that the pods of one job have chosen; `on_chosen` is called once for each."""

    def __init__(self, ask: Ask, on_chosen: Callable[[str], None]) -> None:
        self._ask = ask
        self._on_chosen = on_chosen
        #: uid → channel.
        self._chosen: dict[str, str] = {}
        #: uid → time of the next query, by the loop's clock.
        self._due_s: dict[str, float] = {}

    async def of(self, pod: Object) -> str:
        """The channel of a running pod, queried if necessary; empty: not known yet."""
        uid, told = str(pod["metadata"].get("uid")), told_channel(pod)
        if told != protocol.PUSH_OR_EXEC:
            self._chosen[uid] = told
        now_s = asyncio.get_running_loop().time()
        if uid not in self._chosen and now_s >= self._due_s.setdefault(uid, now_s + _TRIED_S):
            self._due_s[uid] = now_s + _AGAIN_S
            if channel := await self._ask(pod):
                self._chosen[uid] = channel
                self._on_chosen(channel)
        return self._chosen.get(uid, "")

    def of_now(self, pod: Object) -> str:
        """The known channel of a pod; empty: not known yet."""
        return self._chosen.get(str(pod["metadata"].get("uid")), "")

    def due_s(self, pods: Iterable[Object]) -> float | None:
        """Time of the next query of any of these pods, by the loop's clock; None: none is due."""
        uids = [str(pod["metadata"].get("uid")) for pod in pods]
        return min((self._due_s[uid] for uid in uids if uid in self._due_s and uid not in self._chosen), default=None)


def runner_container(pod: Object) -> Object:
    """The name of the container with a runner; empty: there is none."""
    containers: list[Object] = (pod.get("spec") or {}).get("containers") or []
    return next((one for one in containers if _variable(one, protocol.ENV_CHANNEL)), {})


def told_channel(pod: Object) -> str:
    """The channel in the environment of a pod's runner; empty: it has no runner."""
    return _variable(runner_container(pod), protocol.ENV_CHANNEL)


def _variable(container: Object, name: str) -> str:
    """The value of a container's variable, the last of that name; empty: not set."""
    found = [one.get("value") for one in container.get("env") or () if one.get("name") == name]
    return str(found[-1] or "") if found else ""
