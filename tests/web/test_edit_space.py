"""The search space in the edit form: confirmation with old and new value, refusals, the change."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.api.world import World
from tests.web.test_pages import Page, create, get

pytestmark = pytest.mark.unit

OLD = {"x": {"_type": "uniform", "_value": [0, 1]}, "y": {"_type": "choice", "_value": [1, 2]}}
NEW = {"x": {"_type": "uniform", "_value": [0, 5]}, "z": {"_type": "choice", "_value": ["a"]}}


async def test_changed_parameters_are_shown_then_applied(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor, searchSpace=OLD, maxTrialNumber=7)
    assert "_value" in (await get(visitor, f"/experiments/{id_}/edit")).text
    asked = Page((await visitor.post(f"/experiments/{id_}/edit", data={"searchSpace": json.dumps(NEW)})).text)
    for words in ('[0, 1]} {"_type": "uniform", "_value": [0, 5]}', "[1, 2]} absent", "searchSpace.z absent"):
        assert words in asked.text, words
    assert "maxTrialNumber 7" not in asked.text, "fields that are not sent are unchanged"
    described = f"/api/v1/experiments/{id_}"
    assert (await visitor.get(described)).json()["config"]["searchSpace"] == OLD
    sent = await visitor.post(f"/experiments/{id_}/edit", data={"searchSpace": json.dumps(NEW), "sure": "1"})
    assert sent.status_code == 303
    config = (await visitor.get(described)).json()["config"]
    assert (config["searchSpace"], config["maxTrialNumber"]) == (NEW, 7)


async def test_reformatted_space_is_not_a_change(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor, searchSpace=OLD)
    turned = json.dumps(dict(reversed(OLD.items())), indent=4).replace("\n", "\r\n")
    answer = await visitor.post(f"/experiments/{id_}/edit", data={"searchSpace": turned})
    assert answer.status_code == 200 and "Changes:" not in answer.text


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "is not JSON"), ("[]", "must be a JSON object"), ("", "is not JSON"), ('{"x": {"_type": "no"}}', "x")],
)
async def test_invalid_search_space_is_refused(visitor: httpx.AsyncClient, world: World, text: str, words: str) -> None:
    id_ = await create(world, visitor, searchSpace=OLD)
    answer = await visitor.post(f"/experiments/{id_}/edit", data={"searchSpace": text, "sure": "1"})
    assert answer.status_code == 400 and words in Page(answer.text).text
    assert (await visitor.get(f"/api/v1/experiments/{id_}")).json()["config"]["searchSpace"] == OLD
