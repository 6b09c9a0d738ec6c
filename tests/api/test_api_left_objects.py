"""Objects that experiments left on services: listed except those of open experiments, and removed on request."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import httpx
import pytest

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.contract import LeftObject
from tests.api.services import EXPERIMENTS, Acted, act, create
from tests.api.world import World

pytestmark = [pytest.mark.unit, pytest.mark.timeout(60)]

LEFT = "/api/v1/platforms/left"


class Finding(Acted):
    """A service with three objects of each experiment, which states the maker of each."""

    of: ClassVar[list[str]] = []

    async def find_left(self, at_work: Collection[str], remove: Collection[str] | None) -> Sequence[LeftObject]:
        self._may_raise()
        found = [id for id in self.of if id not in at_work and (remove is None or id in remove)]
        if remove is not None:
            Finding.of = [id for id in self.of if id not in found]
        return [
            LeftObject(experiment_id=id, manager=manager, what=f"Job {id}", created_ms=7)
            for id in found
            for manager in (self.host.connections.identity, "99999999", "")
        ]


@pytest.fixture(autouse=True)
def finding(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    act(monkeypatch)
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: replace(find(name), finds_left=name == "local"))
    monkeypatch.setattr(registry, "adapter_of", lambda _platform: Finding)
    monkeypatch.setattr(Finding, "of", [])


async def asked(api: httpx.AsyncClient, world: World, *remove: str) -> list[dict[str, Any]]:
    config = world.config(trainingService=[{"platform": "local"}, {"platform": "scripted"}])
    answer = await api.post(LEFT, json=config, params={"remove": list(remove)})
    assert answer.status_code == 200, answer.text
    (service,) = answer.json()["services"]
    assert service["service"] == "local"
    return list(service["objects"])


async def test_objects_of_open_experiments_are_not_found_or_removed(api: httpx.AsyncClient, world: World) -> None:
    at_work, stopped = await create(api, world), await create(api, world)
    await api.post(f"{EXPERIMENTS}/{stopped}/stop")
    Finding.of = [at_work, stopped, "lostlost"]
    found = await asked(api, world)
    assert [one["experiment"] for one in found] == [stopped] * 3 + ["lostlost"] * 3
    assert [one["manager"] for one in found[:3]] == ["this", "another", "unknown"]
    assert found[0] == {
        "experiment": stopped,
        "manager": "this",
        "what": f"Job {stopped}",
        "createdMs": 7,
        "stays": "",
    }
    removed = await asked(api, world, at_work, "lostlost")
    assert {one["experiment"] for one in removed} == {"lostlost"}
    assert Finding.of == [at_work, stopped]
    assert (await api.get(EXPERIMENTS)).json()["total"] == 2, "nothing is made of the config"


async def test_unreachable_service_is_reported(api: httpx.AsyncClient, world: World) -> None:
    Acted.trouble["local"] = PlatformUnavailable("no route to host")
    answer = await api.post(LEFT, json=world.config(trainingService={"platform": "local"}))
    assert answer.json()["services"] == [
        {"service": "local", "platform": "local", "objects": [], "trouble": "no route to host"}
    ]
    assert (await api.post(LEFT, json={"trainingService": {"platform": "local"}})).status_code == 400
