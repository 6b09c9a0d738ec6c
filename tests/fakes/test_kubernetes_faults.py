"""Faults of the fake API server on demand, and its unchanged state afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes_asyncio import client

from tests.fakes.kubernetes.testing import IMAGE, NAMESPACE, TestCluster, until

pytestmark = [pytest.mark.unit, pytest.mark.cluster(controllers=False)]
UNREACHABLE = (aiohttp.ClientError, ConnectionError)


def named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {}}


async def test_request_is_refused_the_given_number_of_times(world: TestCluster, core: client.CoreV1Api) -> None:
    world.control.fault(method="GET", path="/pods", times=2, status=429, reason="TooManyRequests", retry_after=1)
    for _ in range(2):
        with pytest.raises(client.ApiException) as error:
            await core.list_namespaced_pod(NAMESPACE)
        assert error.value.status == 429 and error.value.headers["Retry-After"] == "1"
    assert (await core.list_namespaced_pod(NAMESPACE)).items == []


@pytest.mark.parametrize(("drop", "made"), [("before", False), ("after", True)])
async def test_answer_is_lost(world: TestCluster, core: client.CoreV1Api, drop: str, made: bool) -> None:
    world.control.fault(method="POST", drop=drop)
    with pytest.raises(UNREACHABLE):
        await core.create_namespaced_config_map(NAMESPACE, named("a"))
    names = [each.metadata.name for each in (await core.list_namespaced_config_map(NAMESPACE)).items]
    assert ("a" in names) is made


@pytest.mark.parametrize(("message", "end"), [("it has no team", ": it has no team"), ("", " without explanation")])
async def test_webhook_denies(world: TestCluster, core: client.CoreV1Api, message: str, end: str) -> None:
    world.control.deny("configmaps", "team.example.com", message)
    with pytest.raises(client.ApiException) as refused:
        await core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "a"}})
    told = json.loads(refused.value.body)
    assert (told["code"], told["reason"]) == (403, "Forbidden")
    assert told["message"] == f'admission webhook "team.example.com" denied the request{end}'
    world.control.clear()
    await core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "a"}})


async def test_watch_ends_in_the_middle(world: TestCluster, core: client.CoreV1Api) -> None:
    for name in ("a", "b", "c"):
        await core.create_namespaced_config_map(NAMESPACE, named(name))
    world.control.fault(watch_events=2, watch_garbage=True)
    answer = await core.list_namespaced_config_map(NAMESPACE, watch=True, _preload_content=False)
    lines = (await answer.content.read()).split(b"\n")
    assert [json.loads(line)["type"] for line in lines[:2]] == ["ADDED", "ADDED"]
    with pytest.raises(ValueError, match="Unterminated"):
        json.loads(lines[2])


async def test_old_watch_gets_410(world: TestCluster, core: client.CoreV1Api) -> None:
    world.control.fault(watch_events=0, watch_gone=True)
    answer = await core.list_namespaced_config_map(NAMESPACE, watch=True, _preload_content=False)
    event = json.loads(await answer.content.read())
    assert event["type"] == "ERROR" and event["object"]["code"] == 410 and event["object"]["reason"] == "Expired"


async def test_vanished_object_sends_no_event(world: TestCluster, core: client.CoreV1Api) -> None:
    await core.create_namespaced_config_map(NAMESPACE, named("a"))
    listed = await core.list_namespaced_config_map(NAMESPACE)
    version = listed.metadata.resource_version
    answer = await core.list_namespaced_config_map(
        NAMESPACE, watch=True, resource_version=version, _preload_content=False
    )
    world.control.vanish("configmaps", NAMESPACE, "a")
    with pytest.raises(aiohttp.ClientPayloadError):
        await answer.content.read()
    answer.close()
    again = await core.list_namespaced_config_map(
        NAMESPACE, watch=True, resource_version=version, _preload_content=False
    )
    assert json.loads(await again.content.readline())["object"]["code"] == 410
    again.close()


async def test_outage_passes(world: TestCluster, core: client.CoreV1Api) -> None:
    await core.create_namespaced_config_map(NAMESPACE, named("a"))
    await world.control.outage(0.4)

    async def away() -> bool:
        try:
            await core.list_namespaced_pod(NAMESPACE)
        except UNREACHABLE:
            return True
        return False

    await until(away)

    async def back() -> Any:
        try:
            return await core.read_namespaced_config_map("a", NAMESPACE)
        except UNREACHABLE:
            return None

    assert (await until(back)).metadata.name == "a"


async def test_faults_can_be_requested_over_http(world: TestCluster) -> None:
    url = f"{world.fake.url}/_control"
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/fault", json={"speed": 1}, ssl=False) as answer:
            assert answer.status == 400 and "speed" in (await answer.json())["message"]
        async with session.post(f"{url}/user", json={"name": "ann"}, ssl=False) as answer:
            assert (await answer.json())["token"]
        async with session.post(f"{url}/_life", json={}, ssl=False) as answer:
            assert answer.status == 404


class Process:
    """`python -m tests.fakes.kubernetes`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config = folder / "kubeconfig"

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.fakes.kubernetes",
            "--folder",
            str(self._folder),
            "--back-off",
            "0.1",
            cwd=Path(__file__).parents[2],
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.told = json.loads(await self._process.stdout.readline())

    async def end(self, number: int) -> None:
        self._process.send_signal(number)
        await self._process.wait()


async def test_killed_server_restarts_with_the_same_state(tmp_path: Path) -> None:
    """Its pods continue, and their ends are known."""
    process = Process(tmp_path)
    await process.start()
    try:
        world = TestCluster(process.config, "default", None)
        async with world.client() as api:
            core = client.CoreV1Api(api)
            script = "while [ ! -e /e/end ]; do sleep 0.02; done; echo over; exit 6"
            container = {
                "name": "c",
                "image": IMAGE,
                "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "e", "mountPath": "/e"}],
            }
            spec = {"restartPolicy": "Never", "containers": [container], "volumes": [{"name": "e", "emptyDir": {}}]}
            made = await core.create_namespaced_pod("default", {"metadata": {"name": "a"}, "spec": spec})

            async def runs() -> bool:
                return (await core.read_namespaced_pod("a", "default")).status.phase == "Running"

            await until(runs)
        address = process.told["server"]
        await process.end(signal.SIGKILL)
        (tmp_path / "pods" / made.metadata.uid / "volumes" / "e" / "end").touch()
        await process.start()
        assert process.told["server"] == address
        async with world.client() as api:
            core = client.CoreV1Api(api)

            async def ended() -> Any:
                found = await core.read_namespaced_pod("a", "default")
                return found if found.status.phase == "Failed" else None

            found = await until(ended)
            assert found.metadata.uid == made.metadata.uid
            assert found.status.container_statuses[0].state.terminated.exit_code == 6
            answer = await core.read_namespaced_pod_log("a", "default", _preload_content=False)
            assert await answer.content.read() == b"over\n"
    finally:
        await process.end(signal.SIGTERM)
    assert not [each for each in os.listdir(tmp_path / "pods") if each != made.metadata.uid]
