"""Training services added, changed and removed while the experiment runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from nni_manager.scheduler.experiments import commands
from nni_manager.store import private
from tests.api.services import EXPERIMENTS, Acted, add_trial, create, shown
from tests.api.test_api_services import by_name
from tests.api.world import World

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30), pytest.mark.usefixtures("acted")]

LOCAL: dict[str, Any] = {"platform": "local"}


async def change(api: httpx.AsyncClient, id: str, *sections: dict[str, Any], **fields: Any) -> httpx.Response:
    return await api.patch(f"{EXPERIMENTS}/{id}", json={"trainingService": list(sections), **fields})


async def one_on_each(api: httpx.AsyncClient, world: World) -> tuple[str, str, str]:
    """An experiment, a trial that runs on `local`, and one on `local-2`."""
    id_ = await create(api, world, "local", "local", trialConcurrency=2)
    await shown(api, id_, lambda one: [service["status"] for service in one["services"]] == ["up", "up"])
    first, second = await add_trial(api, id_), await add_trial(api, id_)
    for trial, service in ((first, "local"), (second, "local-2")):
        found = await shown(api, f"{id_}/trials/{trial}", lambda one: one["status"] == "RUNNING")
        assert found["service"] == service
    return id_, first, second


async def test_a_service_is_added(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world, trialConcurrency=2)
    first, second = await add_trial(api, id_), await add_trial(api, id_)
    answer = await change(api, id_, {**LOCAL, "trialConcurrency": 1}, LOCAL)
    assert answer.status_code == 200, answer.text
    assert [one.get("name") for one in answer.json()["config"]["trainingService"]] == [None, None]
    found = await shown(api, id_, lambda one: by_name(one).get("local-2", {}).get("status") == "up")
    assert found["platform"] == "local,local"
    third = await add_trial(api, id_)
    await api.patch(f"{EXPERIMENTS}/{id_}", json={"trialConcurrency": 3})
    await shown(api, f"{id_}/trials/{third}", lambda one: one["service"] == "local-2")
    for trial in (first, second):
        assert (await api.get(f"{EXPERIMENTS}/{id_}/trials/{trial}")).json()["service"] == "local"
    (listed,) = (await api.get(EXPERIMENTS)).json()["experiments"]
    assert listed["platform"] == "local,local"


async def test_removed_service_stays_until_last_job_is_forgotten(api: httpx.AsyncClient, world: World) -> None:
    id_, first, _ = await one_on_each(api, world)
    answer = await change(api, id_, {**LOCAL, "name": "local-2"})
    assert answer.status_code == 200, answer.text
    services = by_name(answer.json())
    assert (services["local"]["status"], services["local"]["openAttempts"]) == ("removed", 1)
    assert services["local-2"]["status"] == "up", "the one that stays keeps its name"
    await api.patch(f"{EXPERIMENTS}/{id_}", json={"trialConcurrency": 9})
    third = await add_trial(api, id_)
    await shown(api, f"{id_}/trials/{third}", lambda one: one["service"] == "local-2")
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    assert set(experiment.loop.services) == {"local", "local-2"}
    await api.post(f"{EXPERIMENTS}/{id_}/trials/{first}/kill")
    await shown(api, f"{id_}/trials/{first}", lambda one: one["status"] == "USER_CANCELED")
    await shown(api, id_, lambda _: set(experiment.loop.services) == {"local-2"})
    profile = (await api.get(f"/experiments/{id_}/api/v1/nni/experiment")).json()
    assert profile["params"]["trainingService"]["name"] == "local-2", "NNI's API follows"


async def test_now_cancels_running_trials(api: httpx.AsyncClient, world: World) -> None:
    id_, first, second = await one_on_each(api, world)
    await change(api, id_, {**LOCAL, "name": "local-2"}, now=True)
    await shown(api, f"{id_}/trials/{first}", lambda one: one["status"] == "USER_CANCELED")
    assert (await api.get(f"{EXPERIMENTS}/{id_}/trials/{second}")).json()["status"] == "RUNNING"


async def test_changeable_fields_reach_a_new_adapter(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Acted, "changeable", frozenset({"reuseMode"}))
    id_ = await create(api, world)
    trial = await add_trial(api, id_)
    await shown(api, f"{id_}/trials/{trial}", lambda one: one["status"] == "RUNNING")
    before = Acted.made["local"]
    answer = await change(api, id_, {**LOCAL, "reuseMode": True})
    assert answer.json()["config"]["trainingService"]["reuseMode"] is True
    await shown(api, id_, lambda one: Acted.made["local"] is not before and by_name(one)["local"]["status"] == "up")
    assert Acted.made["local"].config.reuse_mode is True
    await api.post(f"{EXPERIMENTS}/{id_}/trials/{trial}/kill")
    await shown(api, f"{id_}/trials/{trial}", lambda one: one["status"] == "USER_CANCELED")
    await change(api, id_, LOCAL)
    await shown(api, id_, lambda _: Acted.made["local"].config.reuse_mode is False, 2)


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ([{**LOCAL, "useActiveGpu": True}], "trainingService[0].useActiveGpu: cannot be changed while local exists"),
        ([LOCAL, {**LOCAL, "name": "local"}], "trainingService[0].name: is local, which another section has, too"),
        ([{**LOCAL, "name": "db"}], "trainingService[0].name: must be local, or local- and a number"),
        ([], "trainingService: is an empty list"),
        ([{"platform": "nowhere"}], "trainingService[0].platform: "),
        ([{**LOCAL, "trialConcurrency": 0}], "trainingService[0].trialConcurrency: "),
    ],
)
async def test_bad_changes_name_field_and_fix(
    api: httpx.AsyncClient, world: World, sections: list[Any], sentence: str
) -> None:
    id_ = await create(api, world)
    before = (await api.get(f"{EXPERIMENTS}/{id_}")).json()["config"]
    answer = await change(api, id_, *sections)
    assert answer.status_code == 400, answer.text
    assert sentence in answer.json()["error"], answer.text
    assert (await api.get(f"{EXPERIMENTS}/{id_}")).json()["config"] == before


async def test_service_fields_need_training_service(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    answer = await api.patch(f"{EXPERIMENTS}/{id_}", json={"now": True})
    assert (answer.status_code, "now: requires trainingService" in answer.text) == (400, True)


async def test_secret_of_a_stored_change_is_kept_until_used(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that was removed before may be gone at that moment."""
    id_ = await create(api, world)
    experiment = world.supervisor.find(id_)
    here = asyncio.get_running_loop()

    def load(path: Path) -> private.Kept:
        asyncio.run_coroutine_threadsafe(experiment.loop._services.forget_secrets(), here).result(10)
        return private.load(path)

    monkeypatch.setattr(commands, "private", SimpleNamespace(load=load))
    section = {"platform": "scripted", "token": "${BEE_TOKEN}", "acceptedToken": "0" * 64}
    answer = await change(api, id_, LOCAL, section, secrets={"${BEE_TOKEN}": "right"})
    assert answer.is_success, answer.text
    stored = experiment.folder.private
    assert private.load(stored).secrets == {"${BEE_TOKEN}": "right"} and experiment.loop.missing is None
    await change(api, id_, LOCAL)
    await shown(api, id_, lambda _: not private.load(stored).secrets)
