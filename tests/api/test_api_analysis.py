"""The endpoint of questions about trials, in a whole manager."""

from __future__ import annotations

import httpx
import pytest

from nni_manager.analysis.questions import QUESTIONS
from nni_manager.api.analysis import Question
from tests.api.test_api_experiments import create
from tests.api.world import World

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
    await world.service.stop(id)
    stopped = await api.get(path, headers={"If-None-Match": after.headers["ETag"]})
    assert stopped.status_code == 200 and stopped.json()["rows"][0]["status"] == "USER_CANCELED"


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


async def test_a_damaged_database_is_said(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    folder.database.write_bytes(b"nonsense" * 1000)
    answer = await api.get(f"{SEEDED}/trials")
    assert answer.status_code == 503 and "nni.sqlite" in answer.json()["error"]


@pytest.mark.usefixtures("seeded")
async def test_a_token_in_the_address_is_no_filter(api: httpx.AsyncClient) -> None:
    assert (await api.get(f"{SEEDED}/trials?token=secret")).status_code == 200


def test_every_question_is_offered() -> None:
    assert {question.value for question in Question} == set(QUESTIONS)
