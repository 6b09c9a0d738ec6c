"""Endpoints in the API: requested, described, recorded, and refused before anything is made."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import Any

import httpx
import pytest

from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.experiment import ExperimentStatus, ExperimentWarning
from nni_manager.store.connection import connect
from nni_manager.store.experiment import experiments
from nni_manager.store.index import index
from tests.api.world import World
from tests.scheduler.fake_endpoints import FakeEndpoints

pytestmark = pytest.mark.unit

EXPERIMENTS = "/api/v1/experiments"


async def create(api: httpx.AsyncClient, world: World, **options: Any) -> httpx.Response:
    return await api.post(EXPERIMENTS, json={"config": json.dumps(world.config()), **options})


async def endpoint_of(api: httpx.AsyncClient, id: str) -> Any:
    listed = {one["id"]: one["endpoint"] for one in (await api.get(EXPERIMENTS)).json()["experiments"]}
    found = (await api.get(f"{EXPERIMENTS}/{id}")).json()["endpoint"]
    assert listed[id] == found
    return found


async def recorded(world: World, id: str) -> Endpoint | None:
    """In the index and, while it is open, in the folder: the same."""
    entry = await world.commands.entry(id)
    if entry.is_open:
        assert (await asyncio.to_thread(index.read_folder, entry.folder)).endpoint == entry.endpoint
    return entry.endpoint


async def test_an_experiment_gets_a_port_of_its_own(
    api: httpx.AsyncClient, world: World, listener: FakeEndpoints
) -> None:
    id_ = (await create(api, world, endpoint={"port": 8888, "urlPrefix": "/my/pre/"})).json()["id"]
    assert await endpoint_of(api, id_) == {
        "port": 8888,
        "urlPrefix": "my/pre",
        "url": "http://127.0.0.1:8888/my/pre/",
    }
    assert listener.endpoints == {id_: await recorded(world, id_)} == {id_: Endpoint(port=8888, prefix="my/pre")}
    await api.post(f"{EXPERIMENTS}/{id_}/stop")
    assert listener.endpoints == {} and await endpoint_of(api, id_) is None and await recorded(world, id_) is None


@pytest.mark.parametrize("port", [8888, 8889])
async def test_refused_id_keeps_endpoint_of_existing_experiment(
    api: httpx.AsyncClient, world: World, listener: FakeEndpoints, port: int
) -> None:
    assert (await create(api, world, id="mine", endpoint={"port": 8888})).status_code == 201
    world.supervisor.shared.warnings.set("mine", ExperimentWarning(code="ODD", message="it is odd"))
    again = await create(api, world, id="mine", endpoint={"port": port})
    assert again.status_code == 409 and "choose another id" in again.text
    assert listener.endpoints == {"mine": Endpoint(port=8888, prefix="")}
    assert world.supervisor.shared.warnings.of("mine")


async def test_one_id_is_given_to_one_of_two_at_a_time(
    api: httpx.AsyncClient, world: World, listener: FakeEndpoints
) -> None:
    answers = await asyncio.gather(*(create(api, world, id="mine", endpoint={"port": port}) for port in (8888, 8889)))
    assert sorted(answer.status_code for answer in answers) == [201, 409]
    assert listener.endpoints == {"mine": await recorded(world, "mine")}


async def test_no_endpoint_unless_requested(api: httpx.AsyncClient, world: World, listener: FakeEndpoints) -> None:
    id_ = (await create(api, world)).json()["id"]
    assert await endpoint_of(api, id_) is None and listener.endpoints == {}
    listener.has_service = True
    id_ = (await create(api, world, endpoint={"port": None})).json()["id"]
    assert await endpoint_of(api, id_) is None and listener.endpoints == {}


async def test_a_port_that_is_taken_leaves_nothing_behind(
    api: httpx.AsyncClient, world: World, listener: FakeEndpoints
) -> None:
    listener.taken = {8888}
    answer = await create(api, world, endpoint={"port": 8888})
    assert answer.status_code == 409
    assert answer.json() == {"error": "port 8888 is in use by process 1 (init); choose another with --port"}
    assert (await api.get(EXPERIMENTS)).json()["experiments"] == []
    assert list(world.data.glob("*/db")) == [] and listener.endpoints == {}


async def test_a_port_is_given_back_when_the_rest_fails(
    api: httpx.AsyncClient, world: World, listener: FakeEndpoints
) -> None:
    # the config's check passes for root, yet /proc cannot be written
    config = json.dumps(world.config(experimentWorkingDirectory="/proc/nowhere"))
    answer = await api.post(EXPERIMENTS, json={"config": config, "endpoint": {"port": 8888}})
    assert answer.status_code == 400 and "experimentWorkingDirectory" in answer.json()["error"]
    assert listener.endpoints == {}


@pytest.mark.parametrize(
    ("endpoint", "word"),
    [
        ({"port": -1}, "port"),
        ({"port": 65536}, "port"),
        ({"port": "many"}, "port"),
        ({"prot": 1}, "prot"),
        ({"urlPrefix": "a//b"}, "urlPrefix"),
        ({"urlPrefix": ".."}, "urlPrefix"),
        ({"urlPrefix": 7}, "urlPrefix"),
        (8080, "endpoint"),
    ],
)
async def test_invalid_endpoint_names_the_field(
    api: httpx.AsyncClient, world: World, listener: FakeEndpoints, endpoint: object, word: str
) -> None:
    await world.add("seeded")
    for answer in (
        await create(api, world, endpoint=endpoint),
        await api.post(f"{EXPERIMENTS}/view", json={"id": "seeded", "endpoint": endpoint}),
        await api.post(f"{EXPERIMENTS}/seeded/resume", json={"endpoint": endpoint}),
    ):
        assert answer.status_code == 400 and word in answer.json()["error"]
    assert (await world.commands.entry("seeded")).status is ExperimentStatus.STOPPED and listener.endpoints == {}


async def test_resume_and_view_take_a_port(api: httpx.AsyncClient, world: World, listener: FakeEndpoints) -> None:
    await world.add("seeded")
    viewed = await api.post(f"{EXPERIMENTS}/view", json={"id": "seeded", "endpoint": {"port": 8001}})
    assert (viewed.json()["status"], viewed.json()["endpoint"]["port"]) == ("VIEWED", 8001)
    assert world.supervisor.viewed == {"seeded"} and world.supervisor.has_work
    refused = await api.patch(f"{EXPERIMENTS}/seeded", json={"trialConcurrency": 2})
    assert refused.status_code == 409 and "seeded is viewed, which is for reading only" in refused.json()["error"]
    resumed = await api.post(f"{EXPERIMENTS}/seeded/resume")
    assert (resumed.json()["status"], resumed.json()["endpoint"]["port"]) == ("RUNNING", 8001), "the port stays"
    assert await recorded(world, "seeded") == Endpoint(port=8001) and world.supervisor.viewed == set()
    other = await api.post(f"{EXPERIMENTS}/seeded/resume", json={"endpoint": {"port": 8002}})
    assert other.json()["endpoint"]["port"] == 8002 and await recorded(world, "seeded") == Endpoint(port=8002)
    refused = await api.post(f"{EXPERIMENTS}/seeded/resume", json={"debug": True})
    assert (
        refused.status_code == 409 and "debug can be enabled only when a stopped experiment is resumed" in refused.text
    )
    await api.post(f"{EXPERIMENTS}/seeded/stop")
    assert listener.endpoints == {}
    resumed = await api.post(f"{EXPERIMENTS}/seeded/resume", json={"endpoint": {"port": 8003}, "debug": True})
    assert resumed.json()["endpoint"]["port"] == 8003
    shown = (await api.get(f"{EXPERIMENTS}/seeded")).json()["config"]
    assert (shown["debug"], shown["logLevel"], shown["trainingService"]["debug"]) == (True, "debug", True)


@pytest.mark.parametrize("verb", ["resume", "view"])
async def test_a_refused_port_changes_nothing(
    api: httpx.AsyncClient, world: World, listener: FakeEndpoints, verb: str
) -> None:
    await world.add("seeded")
    before = await world.commands.entry("seeded")
    listener.taken = {8888}
    path, body = (f"{EXPERIMENTS}/view", {"id": "seeded"}) if verb == "view" else (f"{EXPERIMENTS}/seeded/resume", {})
    answer = await api.post(path, json={**body, "endpoint": {"port": 8888}})
    assert answer.status_code == 409 and "port 8888 is in use" in answer.text
    assert await world.commands.entry("seeded") == before and listener.endpoints == {}
    assert not world.supervisor.has_work


async def test_a_resume_that_fails_gives_the_view_back(
    api: httpx.AsyncClient, world: World, listener: FakeEndpoints
) -> None:
    folder = await world.add("seeded")
    await api.post(f"{EXPERIMENTS}/view", json={"id": "seeded", "endpoint": {"port": 8001}})
    folder.database.write_text("no database " * 99)
    answer = await api.post(f"{EXPERIMENTS}/seeded/resume", json={"endpoint": {"port": 8002}})
    assert answer.status_code == 409 and "restore it from a backup" in answer.json()["error"]
    assert listener.endpoints == listener.restored == {"seeded": Endpoint(port=8001)}
    assert (await world.commands.entry("seeded")).status is ExperimentStatus.VIEWED


async def test_stop_all_and_delete_close_views(api: httpx.AsyncClient, world: World, listener: FakeEndpoints) -> None:
    empty: list[bool] = []
    world.supervisor.on_empty = lambda: empty.append(True)
    for number, id_ in enumerate(("seeded", "gone")):
        await world.add(id_)
        await api.post(f"{EXPERIMENTS}/view", json={"id": id_, "endpoint": {"port": 8001 + number}})
    assert (await api.delete(f"{EXPERIMENTS}/gone")).status_code == 204
    assert listener.endpoints == {"seeded": Endpoint(port=8001)} and empty == []
    assert (await api.post(f"{EXPERIMENTS}/stop")).json() == {"stopped": ["seeded"]}
    assert listener.endpoints == {} and empty == [True]
    assert (await world.commands.entry("seeded")).status is ExperimentStatus.STOPPED


async def test_a_view_that_is_not_open_is_an_error_of_the_experiment(
    api: httpx.AsyncClient, world: World, listener: FakeEndpoints
) -> None:
    id_ = (await create(api, world, endpoint={"port": 8888})).json()["id"]
    listener.problems[id_] = "its endpoint cannot be reopened: port 8888 is in use by process 1 (init)"
    assert (await api.get(f"{EXPERIMENTS}/{id_}")).json()["errors"] == [listener.problems[id_]]
    assert (await api.get(EXPERIMENTS)).json()["experiments"][0]["errors"] == [listener.problems[id_]]


async def test_a_folder_from_elsewhere(api: httpx.AsyncClient, world: World, tmp_path_factory: Any) -> None:
    folder, elsewhere = await world.add("seeded"), tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(folder.path, elsewhere / "seeded")
    shutil.copytree(folder.path, elsewhere / "renamed")
    for place in (elsewhere, elsewhere / "seeded"):
        body = {"id": "seeded", "workingDirectory": str(place)}
        answer = await api.post(f"{EXPERIMENTS}/view", json=body)
        assert (answer.status_code, answer.json()["logPath"]) == (200, str(elsewhere / "seeded"))
    refused = await api.post(f"{EXPERIMENTS}/view", json={"id": "renamed", "workingDirectory": str(elsewhere)})
    assert refused.status_code == 400 and "belongs to experiment seeded; use that id" in refused.json()["error"]
    for path in ("/nowhere", "/null\0byte"):
        refused = await api.post(f"{EXPERIMENTS}/view", json={"id": "seeded", "workingDirectory": path})
        assert refused.status_code in (400, 404) and len(refused.json()["error"]) > 10
    resumed = await api.post(f"{EXPERIMENTS}/seeded/resume", json={"workingDirectory": str(elsewhere)})
    assert (resumed.status_code, resumed.json()["logPath"]) == (200, str(elsewhere / "seeded"))
    refused = await api.post(f"{EXPERIMENTS}/seeded/resume", json={"workingDirectory": str(world.data)})
    assert refused.status_code == 409 and f"is running in {elsewhere / 'seeded'}" in refused.json()["error"]


async def test_folder_from_before_the_first_release_is_refused(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    connection = connect(folder.database)
    connection.execute("PRAGMA application_id=0")
    connection.close()
    answer = await api.post(f"{EXPERIMENTS}/view", json={"id": "seeded"})
    assert answer.is_error and "was written before the first release" in answer.json()["error"]
    answer = await api.get(f"{EXPERIMENTS}/seeded/trials")
    assert answer.is_error and "was written before the first release" in answer.json()["error"]


@pytest.mark.parametrize(
    ("status", "endpoint"),
    [("RUNNING", Endpoint(port=8001, prefix="x")), ("DONE", Endpoint(port=8001, prefix="x")), ("STOPPED", None)],
)
async def test_the_folder_of_an_open_experiment_knows_its_port(
    world: World, status: ExperimentStatus, endpoint: Endpoint | None
) -> None:
    folder = await world.add("seeded")
    connection = connect(folder.database)
    experiments.set_status(connection, ExperimentStatus(status), 0)
    experiments.set_endpoint(connection, Endpoint(port=8001, prefix="x"))
    connection.close()
    assert (await asyncio.to_thread(index.read_folder, folder)).endpoint == endpoint


async def test_missing_folder_prevents_view_and_shows_error(
    api: httpx.AsyncClient, world: World, listener: FakeEndpoints
) -> None:
    folder = await world.add("seeded")
    shutil.rmtree(folder.path)
    answer = await api.post(f"{EXPERIMENTS}/view", json={"id": "seeded", "endpoint": {"port": 8001}})
    assert (answer.status_code, answer.json()["error"]) == (
        404,
        f"the folder of experiment seeded is gone: {folder.path}",
    )
    (listed,) = (await api.get(EXPERIMENTS)).json()["experiments"]
    assert (listed["status"], listed["endpoint"], listener.endpoints) == ("STOPPED", None, {})
    (sentence,) = listed["errors"]
    assert sentence.startswith(f"the folder of experiment seeded is gone: {folder.path}; `nnictl experiment delete")


@pytest.mark.parametrize("verb", ["resume", "view"])
async def test_unreadable_folder_is_skipped(api: httpx.AsyncClient, world: World, verb: str) -> None:
    await world.add("seeded")
    body = {"workingDirectory": "/" + "x" * 300} | ({"id": "seeded"} if verb == "view" else {})
    path = f"{EXPERIMENTS}/view" if verb == "view" else f"{EXPERIMENTS}/seeded/resume"
    answer = await api.post(path, json=body)
    assert (answer.status_code, "cannot find experiment folder" in answer.text) == (404, True)
