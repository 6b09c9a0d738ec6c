"""The endpoint of questions about trials, in a whole manager."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from nni_manager.analysis.questions import QUESTIONS
from nni_manager.api.analysis import Question
from nni_manager.api.application import create_api
from nni_manager.app.listening.endpoints import EndpointParts
from nni_manager.domain.endpoint import Endpoint
from tests.api.test_api_experiments import create
from tests.api.world import World
from tests.store.test_nni_folder import Old

pytestmark = pytest.mark.unit

SEEDED = "/api/v1/experiments/seeded/analysis"


@pytest.fixture
async def seeded(world: World) -> World:
    await world.add("seeded")
    return world


@pytest.mark.usefixtures("seeded")
async def test_a_closed_experiment_is_answered(api: httpx.AsyncClient) -> None:
    answer = await api.get(f"{SEEDED}/trials", params={"sort": "result", "direction": "maximize"})
    assert answer.status_code == 200, answer.text
    assert [row["id"] for row in answer.json()["rows"]] == ["infin", "good1", "nannn", "fails", "waits"]
    assert answer.json()["total"] == 5 and answer.json()["revision"] == answer.headers["ETag"].strip('"')


@pytest.mark.usefixtures("seeded")
async def test_an_idle_poll_is_a_few_bytes(api: httpx.AsyncClient) -> None:
    tag = (await api.get(f"{SEEDED}/columns")).headers["ETag"]
    for sent in (tag, f"W/{tag}", f'"other", {tag}'):
        again = await api.get(f"{SEEDED}/columns", headers={"If-None-Match": sent})
        assert again.status_code == 304 and again.content == b"" and again.headers["ETag"] == tag
    assert (await api.get(f"{SEEDED}/columns", headers={"If-None-Match": '"other"'})).status_code == 200


async def test_a_running_experiment_has_a_new_tag_with_every_change(api: httpx.AsyncClient, world: World) -> None:
    id = await create(api, world)
    path = f"/api/v1/experiments/{id}/analysis/trials"
    before = await api.get(path)
    assert before.json()["total"] == 0
    await api.post(f"/api/v1/experiments/{id}/trials", json={"parameters": {"x": 0.25}})
    after = await api.get(path, headers={"If-None-Match": before.headers["ETag"]})
    assert after.status_code == 200 and after.json()["rows"][0]["parameters"] == {"x": 0.25}
    await world.commands.stop(id)
    stopped = await api.get(path, headers={"If-None-Match": after.headers["ETag"]})
    assert stopped.status_code == 200 and stopped.json()["rows"][0]["status"] == "USER_CANCELED"


async def test_a_folder_of_nni_is_answered_while_it_is_viewed(api: httpx.AsyncClient, tmp_path: Path) -> None:
    old = Old(tmp_path / "elsewhere")
    old.save(1)
    old.trial("AAAAA", 0, 0, x=0.25, at=1000, parameters_had=0)
    old.save(2, ended_ms=5000)
    viewed = await api.post("/api/v1/experiments/view", json={"id": "oldexp", "workingDirectory": str(old.folder.path)})
    assert viewed.status_code == 200, viewed.text
    answer = (await api.get("/api/v1/experiments/oldexp/analysis/trials")).json()
    assert [(row["id"], row["parameters"], row["result"]) for row in answer["rows"]] == [("AAAAA", {"x": 0.25}, 0)]
    assert (await api.get("/api/v1/experiments/oldexp/analysis/curves")).json()["curves"][0]["y"] == [0.25]


async def test_an_endpoint_answers_about_its_own_experiment_alone(world: World) -> None:
    await world.add("seeded")
    api = create_api(world.context)
    parts = EndpointParts(nni=api, api=api, pages=api, guarded=lambda app: app)
    endpoint = parts.build("seeded", Endpoint(port=8080, prefix="some/prefix"))
    async with world.calling(endpoint) as client:
        assert (await client.get(f"/some/prefix{SEEDED}/trials")).json()["total"] == 5
        other = "/some/prefix/api/v1/experiments/other/analysis/trials"
        assert (await client.get(other)).status_code == 404


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        (f"{SEEDED}/anything", 400, "question"),
        ("/api/v1/experiments/nothere1/analysis/trials", 404, "nothere1"),
        (f"{SEEDED}/trials?colour=red", 400, "colour"),
        (f"{SEEDED}/trials?p.none=1..2", 400, "p.none"),
        (f"{SEEDED}/trials?limit=0", 400, "limit"),
    ],
)
async def test_refusals(api: httpx.AsyncClient, path: str, status: int, word: str) -> None:
    answer = await api.get(path)
    assert (answer.status_code, word in answer.json()["error"]) == (status, True), answer.text


async def test_damaged_database_is_reported(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    folder.database.write_bytes(b"nonsense" * 1000)
    answer = await api.get(f"{SEEDED}/trials")
    assert answer.status_code == 503 and "nni.sqlite" in answer.json()["error"]


@pytest.mark.usefixtures("seeded")
async def test_token_in_address_is_not_a_filter(api: httpx.AsyncClient) -> None:
    assert (await api.get(f"{SEEDED}/trials?token=secret")).status_code == 200


def test_every_question_is_offered() -> None:
    assert {question.value for question in Question} == set(QUESTIONS)
