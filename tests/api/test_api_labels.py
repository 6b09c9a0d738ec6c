"""Notes, tags, archive and name of experiments, open and closed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3

import httpx
import pytest

from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.index import index
from nni_manager.store.index.labels import FILE, Labels, read_labels
from tests.api.test_api_experiments import EXPERIMENTS, create
from tests.api.world import World

pytestmark = pytest.mark.unit

GIVEN = {"notes": "more data\nagain", "tags": ["paper", "gpu"], "archived": True}


async def listed(api: httpx.AsyncClient, query: str = "") -> list[str]:
    answer = await api.get(f"{EXPERIMENTS}{query}")
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["experiments"]]


@pytest.mark.parametrize("is_open", [True, False])
async def test_labels_are_stored_and_shown(api: httpx.AsyncClient, world: World, is_open: bool) -> None:
    if is_open:
        id_ = await create(api, world)
    else:
        id_ = "seeded"
        await world.add(id_)
    answer = await api.patch(f"{EXPERIMENTS}/{id_}", json=GIVEN)
    assert answer.status_code == 200, answer.text
    for found in (answer.json(), (await api.get(EXPERIMENTS)).json()["experiments"][0]):
        assert {name: found[name] for name in GIVEN} == GIVEN
    folder = (await world.commands.entry(id_)).folder
    assert read_labels(folder.path).tags == ("paper", "gpu"), "a rebuilt index has them again"
    entry = await asyncio.to_thread(index.read_folder, folder)
    assert entry.labels.is_archived and entry.labels.notes == "more data\nagain"


async def test_labels_outlive_stop_and_resume(api: httpx.AsyncClient, world: World) -> None:
    id_ = await create(api, world)
    await api.patch(f"{EXPERIMENTS}/{id_}", json={"tags": ["kept"]})
    await api.post(f"{EXPERIMENTS}/{id_}/stop")
    await api.post(f"{EXPERIMENTS}/{id_}/resume")
    assert (await api.get(f"{EXPERIMENTS}/{id_}")).json()["tags"] == ["kept"]


async def test_the_list_is_filtered_by_them(api: httpx.AsyncClient, world: World) -> None:
    for id_, labels in (("one", {"tags": ["paper"]}), ("two", {"archived": True}), ("three", {})):
        await world.add(id_)
        await api.patch(f"{EXPERIMENTS}/{id_}", json=labels) if labels else None
    assert await listed(api, "?tag=paper") == ["one"]
    assert await listed(api, "?archived=true") == ["two"]
    assert sorted(await listed(api, "?archived=false")) == ["one", "three"]
    assert len(await listed(api)) == 3


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tags": "paper"}, "tags: must be a list of texts"),
        ({"tags": ["a,b"]}, "no comma"),
        ({"tags": [""]}, "1 to 40 characters"),
        ({"tags": [f"t{n}" for n in range(21)]}, "there are 21"),
        ({"notes": "x" * 10_001}, "notes: must be a text"),
        ({"archived": 1}, "archived: must be true or false"),
        ({"notes": "\ud800"}, "notes"),
    ],
)
async def test_wrong_labels_are_refused_and_change_nothing(
    api: httpx.AsyncClient, world: World, body: dict[str, object], words: str
) -> None:
    id_ = await create(api, world)
    text = json.dumps({**body, "maxTrialNumber": 99})
    answer = await api.patch(f"{EXPERIMENTS}/{id_}", content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and words in answer.json()["error"]
    found = (await api.get(f"{EXPERIMENTS}/{id_}")).json()
    assert (found["maxTrialNumber"], found["tags"], found["notes"]) == (10, [], "")


async def test_a_closed_experiment_is_renamed_and_keeps_its_id(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    answer = await api.patch(f"{EXPERIMENTS}/seeded", json={"experimentName": "better"})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["id"], answer.json()["name"]) == ("seeded", "better")
    assert (await api.get(f"{EXPERIMENTS}?name=better")).json()["total"] == 1
    with contextlib.closing(sqlite3.connect(folder.database)) as connection:
        (config,) = connection.execute("SELECT config FROM experiment").fetchone()
    assert json.loads(config)["experimentName"] == "better"
    refused = await api.patch(f"{EXPERIMENTS}/seeded", json={"experimentName": "x", "maxTrialNumber": 5})
    assert refused.status_code == 409, "limits are those of an open one"


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_name_is_checked_as_that_of_a_new_experiment(
    api: httpx.AsyncClient, world: World, is_open: bool
) -> None:
    if is_open:
        id_ = (await api.post(EXPERIMENTS, json=world.config())).json()["id"]
    else:
        await world.add(id_ := "seeded")
    before = (await api.get(f"{EXPERIMENTS}/{id_}")).json()["name"]
    for name in ("\0", "a\0b", "  "):
        answer = await api.patch(f"{EXPERIMENTS}/{id_}", json={"experimentName": name})
        assert answer.status_code == 400 and "experimentName" in answer.json()["error"], answer.text
        assert (await api.post(EXPERIMENTS, json=world.config(experimentName=name))).status_code == 400
    assert (await api.get(f"{EXPERIMENTS}/{id_}")).json()["name"] == before
    assert (await api.patch(f"{EXPERIMENTS}/{id_}", json={"experimentName": None})).json()["name"] is None


async def test_labels_of_a_folder_that_is_gone_are_refused(api: httpx.AsyncClient, world: World) -> None:
    (await world.add("seeded", status=ExperimentStatus.STOPPED)).remove()
    answer = await api.patch(f"{EXPERIMENTS}/seeded", json={"tags": ["x"]})
    assert answer.status_code == 503 and "labels.json" in answer.json()["error"]


def test_what_cannot_be_read_is_no_label(world: World) -> None:
    folder = world.data / "some"
    folder.mkdir()
    assert read_labels(folder) == Labels()
    for text in ("not json", "[]", '{"tags": 3}'):
        (folder / FILE).write_text(text)
        assert read_labels(folder) == Labels()
