"""Leads trials in pods by commands in them: needs nothing but the API, whatever lies between this machine and pods."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes_asyncio import client, config
from kubernetes_asyncio.stream import WsApiClient

from nni_manager.kubernetes.api import names
from trial_runner import protocol

_LOOK_AGAIN_S = 0.2
#: What the first byte of a message says it is.
_STDOUT = b"\1"
#: Arguments: the folder of orders, a number, an order. An order that was given is not given again.
_GIVE = """
mkdir -p "$1" || exit 1
if ! [ -e "$1/order-$2" ] && ! [ -e "$1/taken-$2" ]; then
    printf %s "$3" > "$1/new-$2" && mv "$1/new-$2" "$1/order-$2" || exit 1
fi
"""
#: Prints the answer, as soon as there is one.
_TELL = (
    _GIVE
    + """
until [ -e "$1/answer-$2" ]; do sleep 0.1; done
cat "$1/answer-$2"
"""
)
#: An end is answered by none: the container may end with it.
_END = _GIVE + "echo true"
Pod = dict[str, Any]


@contextlib.asynccontextmanager
async def api(kubeconfig: Path, kind: type[client.ApiClient] = client.ApiClient) -> AsyncIterator[client.ApiClient]:
    """The official client, of a kubeconfig's user."""
    told = client.Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=told)
    async with kind(told) as found:
        yield found


class PodOrders:
    """Between this machine and trials in the pods of a namespace. `kubeconfig`: of a user that may exec there."""

    def __init__(self, kubeconfig: Path, namespace: str, patience_s: float) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._patience_s = patience_s
        #: Job → how many orders it was given, and → pods that were seen of it.
        self._given: Counter[str] = Counter()
        self._seen: dict[str, set[str]] = {}

    def command(self, _job_name: str) -> str:
        return "python3 led_job.py"

    async def starts(self, job_name: str) -> int:
        """How many pods of a job were seen, those of now included."""
        await self._pods(job_name)
        return len(self._seen[job_name])

    async def tell(self, job_name: str, order: str) -> Any:
        """The answer, when it is done; of an order to end, when it was given. Waits for the pod, and for the trial."""
        self._given[job_name] += 1
        number, is_end, was_given = self._given[job_name], order.startswith("exit"), False
        async with asyncio.timeout(self._patience_s):
            while True:
                for pod in filter(_runs, await self._pods(job_name)):
                    was_given = True
                    with contextlib.suppress(client.ApiException, aiohttp.ClientError, ValueError):
                        return json.loads(await self._execute(pod, _END if is_end else _TELL, number, order))
                if is_end and was_given:
                    return None  # and it has ended: no pod of it runs
                await asyncio.sleep(_LOOK_AGAIN_S)  # the container is just starting, or the server is

    async def printed(self, job_name: str, line: str) -> None:
        """Returns once the server has a line of the running job's log: it passes through a few hands."""
        async with asyncio.timeout(self._patience_s), api(self._kubeconfig) as server:
            core = client.CoreV1Api(server)
            while True:
                for pod in filter(_runs, await self._pods(job_name)):
                    told = await core.read_namespaced_pod_log(pod["metadata"]["name"], self._namespace)
                    if line in told.splitlines():
                        return
                await asyncio.sleep(_LOOK_AGAIN_S)

    async def _pods(self, job_name: str) -> list[Pod]:
        _, _, experiment_id, _, trial_id = job_name.split("_")
        labels = {names.EXPERIMENT: experiment_id, names.TRIAL: trial_id}
        async with api(self._kubeconfig) as server:
            told = await client.CoreV1Api(server).list_namespaced_pod(
                self._namespace, label_selector=names.selector(labels), _preload_content=False
            )
            found: list[Pod] = (await told.json()).get("items") or []
        self._seen.setdefault(job_name, set()).update(pod["metadata"]["uid"] for pod in found)
        return found

    async def _execute(self, pod: Pod, script: str, number: int, order: str) -> str:
        container = pod["spec"]["containers"][0]
        variables = {one["name"]: one.get("value", "") for one in container["env"]}
        folder = f"{variables[protocol.ENV_SYSTEM_DIR]}/led"
        out = bytearray()
        async with api(self._kubeconfig, WsApiClient) as server:
            opening = await client.CoreV1Api(server).connect_get_namespaced_pod_exec(
                pod["metadata"]["name"],
                self._namespace,
                container=container["name"],
                stdin=False,
                stdout=True,
                stderr=False,
                tty=False,
                command=["sh", "-c", script, "sh", folder, str(number), order],
                _preload_content=False,
            )
            async with opening as socket:
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == _STDOUT:
                        out += message.data[1:]
        return out.decode()


def _runs(pod: Pod) -> bool:
    status = pod.get("status") or {}
    ready = [one for one in status.get("containerStatuses") or () if "running" in (one.get("state") or {})]
    return status.get("phase") == "Running" and bool(ready) and "deletionTimestamp" not in pod["metadata"]
