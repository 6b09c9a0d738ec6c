"""Pods that may choose their channel are asked once, and not before they have tried."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from nni_manager.kubernetes.exec.channel_selection import Choices, runner_container, told_channel
from nni_manager.kubernetes.jobs import draft
from nni_manager.kubernetes.jobs.pod import PodSettings, Role, environment
from trial_runner import protocol

pytestmark = [pytest.mark.unit, pytest.mark.looptime]


def pod(uid: str, channel: str) -> dict[str, Any]:
    containers = [{"name": "side"}, {"name": "main", "env": [{"name": protocol.ENV_CHANNEL, "value": channel}]}]
    return {"metadata": {"name": uid, "uid": uid}, "spec": {"containers": containers}}


class Pods:
    """What runners would answer."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.asked: list[str] = []
        self.chosen: list[str] = []

    async def ask(self, found: dict[str, Any]) -> str:
        self.asked.append(found["metadata"]["uid"])
        return self.answers.get(found["metadata"]["uid"], "")

    def choices(self) -> Choices:
        return Choices(self.ask, self.chosen.append)


async def test_pods_with_a_fixed_channel_are_not_asked() -> None:
    pods = Pods()
    choices = pods.choices()
    assert await choices.of(pod("a", protocol.EXEC)) == protocol.EXEC
    assert await choices.of(pod("b", protocol.PUSH)) == protocol.PUSH
    assert choices.due_s([pod("a", protocol.EXEC)]) is None and (pods.asked, pods.chosen) == ([], [])


async def test_pods_that_choose_are_asked_until_they_have() -> None:
    pods, free = Pods(), pod("a", protocol.PUSH_OR_EXEC)
    choices, loop = pods.choices(), asyncio.get_running_loop()
    assert await choices.of(free) == "" and pods.asked == []
    due_s = choices.due_s([free])
    assert due_s is not None and due_s > loop.time()
    await asyncio.sleep(due_s - loop.time())
    assert await choices.of(free) == "" and pods.asked == ["a"]
    pods.answers["a"] = protocol.EXEC
    assert await choices.of(free) == "" and pods.asked == ["a"], "not again so soon"
    await asyncio.sleep(10)
    assert [await choices.of(free), await choices.of(free)] == [protocol.EXEC] * 2
    assert pods.asked == ["a", "a"] and pods.chosen == [protocol.EXEC] and choices.due_s([free]) is None


def test_runner_container_is_found_by_its_environment() -> None:
    assert runner_container(pod("a", protocol.PUSH))["name"] == "main"
    assert told_channel({"spec": {"containers": [{"name": "x"}]}}) == ""


@pytest.mark.parametrize(
    ("own", "urls"),
    [
        ("", "http://10.1.1.1:81/trial"),
        ("10.1.1.1", "http://10.1.1.1:81/trial"),
        ("10.9.9.9", "http://10.1.1.1:81/trial http://10.9.9.9:81/trial"),
        ("fd00::1", "http://10.1.1.1:81/trial http://[fd00::1]:81/trial"),
    ],
)
def test_pods_get_the_address_towards_the_cluster(own: str, urls: str) -> None:
    told = {protocol.ENV_MANAGER_URL: "http://10.1.1.1:81/trial", protocol.ENV_TOKEN: "secret"}
    spec = dataclasses.replace(draft.spec(), runner_environment=told)
    role = Role(name="worker", count=1, command="true", image="x", container="main", reports=True)
    settings = PodSettings(platform="x", channel=protocol.PUSH_OR_EXEC, runner_map="m", own_address=own)
    found = {one["name"]: one for one in environment(spec, role, settings, "the-secret")}
    assert found[protocol.ENV_MANAGER_URL]["value"] == urls
    assert found[protocol.ENV_TOKEN]["valueFrom"] == {"secretKeyRef": {"name": "the-secret", "key": "token"}}
    assert 'secret"' not in str(found) and found[protocol.ENV_CODE]["value"] == "fetch"
