"""Training services in the description of an experiment and its trials."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from nni_manager.api.schemas.experiments import Experiment
from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import now_ms
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.platform_kit.contract import Room
from nni_manager.scheduler.turns import refusals
from tests.api.services import EXPERIMENTS, Acted, add_trial, create, shown
from tests.api.world import World

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]


def by_name(found: Any) -> dict[str, Any]:
    return {service["name"]: service for service in found["services"]}


@pytest.mark.usefixtures("acted")
async def test_state_of_each_service(api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "HOLD_AFTER_S", 0.0)
    Acted.trouble["local-2"] = PlatformUnavailable("no route to host")
    Acted.trouble["local-3"] = BadCredentials("the token has expired")
    Acted.rooms["local"] = Room(free=0, why=Wait(code=WaitCode.GPU, sentence="gpu 0 is busy"))
    before_ms = now_ms()
    id_ = await create(api, world, "local", "local", "local")
    wanted = {"local": "up", "local-2": "away", "local-3": "on hold"}
    found = await shown(
        api, id_, lambda one: {name: service["status"] for name, service in by_name(one).items()} == wanted, 2
    )
    Experiment.model_validate_json(json.dumps(found))
    services = by_name(found)
    assert (services["local"]["room"], services["local"]["sentence"]) == (0, "gpu 0 is busy")
    assert services["local-2"]["sentence"] == "no route to host"
    assert before_ms <= services["local-2"]["sinceMs"] <= now_ms()
    assert services["local-3"]["sentence"] == "the token has expired"
    assert found["hold"] is None, "one of them is well"


@pytest.mark.usefixtures("acted")
@pytest.mark.parametrize("way", ["resume", "credentials", "platform"])
async def test_resume_retries_the_service_at_once(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Without a new connection, where there is one: the adapter tries a machine that refused the login, say."""
    tried: list[Acted] = []
    monkeypatch.setattr(Acted, "try_again", lambda self: tried.append(self))
    section = {"platform": "scripted", "token": "${BEE_TOKEN}", "acceptedToken": "0" * 64}
    config = json.dumps(world.config(trainingService=section))
    made = await api.post(EXPERIMENTS, json={"config": config, "secrets": {"${BEE_TOKEN}": "wrong"}})
    assert made.is_success, made.text
    id_ = made.json()["id"]
    await shown(api, id_, lambda one: by_name(one)["scripted"]["status"] == "up")
    assert tried == []
    path = f"{EXPERIMENTS}/{id_}"
    if way == "resume":
        answer = await api.post(f"{path}/resume")
    elif way == "credentials":
        answer = await api.put(f"{path}/credentials", json={"secrets": {"${BEE_TOKEN}": "right"}})
    else:
        answer = await api.patch(path, json={"trainingService": {**section, "trialConcurrency": 1}})
    assert answer.is_success, answer.text
    assert tried


@pytest.mark.usefixtures("acted")
async def test_returning_service_is_reported_at_once(api: httpx.AsyncClient, world: World) -> None:
    Acted.trouble["local"] = PlatformUnavailable("no route to host")
    id_ = await create(api, world)
    await shown(api, id_, lambda one: by_name(one)["local"]["status"] == "away", 2)
    del Acted.trouble["local"]
    found = await shown(api, id_, lambda one: by_name(one)["local"]["status"] == "up")
    assert by_name(found)["local"]["sentence"] == ""


@pytest.mark.usefixtures("acted")
async def test_events_tell_of_room_that_changed(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    await shown(api, id_, lambda one: by_name(one)["local"]["status"] == "up")
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    with experiment.changes.watch() as news:
        Acted.rooms["local"] = Room(free=3)
        Acted.made["local"].host.wake("")
        await news.wait()
    assert by_name((await api.get(f"{EXPERIMENTS}/{id_}")).json())["local"]["room"] == 3


@pytest.mark.usefixtures("acted")
async def test_an_attempt_says_where_it_is_and_why_it_waits(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    trial_id = await add_trial(api, id_)
    found = await shown(api, f"{id_}/trials/{trial_id}", lambda one: one["status"] == "RUNNING")
    name, platform = found["attempts"][0]["jobName"], Acted.made["local"]
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    with experiment.changes.watch() as news:
        there = Observation(state=JobState.RUNNING, place="hostA, gpu 0", link="https://there/jobs/1", started_ms=5)
        platform.tell(name, there)
        await news.wait()
    found = (await api.get(f"{EXPERIMENTS}/{id_}/trials/{trial_id}")).json()
    assert (found["service"], found["place"], found["link"]) == ("local", "hostA, gpu 0", "https://there/jobs/1")
    (listed,) = (await api.get(f"{EXPERIMENTS}/{id_}/trials")).json()["trials"]
    assert listed["place"] == "hostA, gpu 0"
    platform.tell(name, Observation(state=JobState.UNKNOWN, unreachable="hostA does not answer"))
    found = await shown(
        api, f"{id_}/trials/{trial_id}", lambda one: one["attempts"][0]["unreachable"] == "hostA does not answer", 2
    )
    assert abs(found["attempts"][0]["unreachableMs"] - now_ms()) < 5_000
    assert by_name((await api.get(f"{EXPERIMENTS}/{id_}")).json())["local"]["openAttempts"] == 1
    nni = (await api.get(f"/experiments/{id_}/api/v1/nni/trial-jobs/{trial_id}")).json()
    assert nni["logPath"] == "https://there/jobs/1", "NNI shows one path"


@pytest.mark.usefixtures("acted")
async def test_why_a_platform_does_not_start_a_job_is_on_the_trial(api: httpx.AsyncClient, world: World) -> None:
    Acted.first = Observation(
        state=JobState.PENDING, wait=Wait(code=WaitCode.IMAGE, sentence="pulling", details={"of": 9})
    )
    id_ = await create(api, world)
    trial_id = await add_trial(api, id_)
    found = await shown(api, f"{id_}/trials/{trial_id}", lambda one: one["wait"]["code"] == "IMAGE")
    assert found["wait"] == {"code": "IMAGE", "sentence": "pulling", "details": {"of": 9}}
    assert found["attempts"][0]["wait"] == found["wait"]
    later = Wait(code=WaitCode.IMAGE, sentence="no such image")
    Acted.made["local"].tell(found["attempts"][0]["jobName"], Observation(state=JobState.PENDING, wait=later))
    await shown(api, f"{id_}/trials/{trial_id}", lambda one: one["wait"]["sentence"] == "no such image", 2)
