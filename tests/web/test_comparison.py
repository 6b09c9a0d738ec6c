"""Experiments side by side: differences first, refusals, and the selection form."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.api.world import World
from tests.web.test_pages import get

pytestmark = pytest.mark.unit


async def two(world: World) -> None:
    await world.add("first", experimentName="one", maxTrialNumber=10)
    await world.add("second", experimentName="two", maxTrialNumber=20, extra_trials=3)


async def test_differences_come_before_results(visitor: httpx.AsyncClient, world: World) -> None:
    await two(world)
    page = await get(visitor, "/compare-experiments?ids=first,second")
    for words in ("maxTrialNumber 10 20", "best result 0.875 0.875", "trials WAITING", "identical fields are hidden"):
        assert words in page.text, words
    assert page.text.index("maxTrialNumber") < page.text.index("best result")
    assert "trialConcurrency" not in page.text
    everything = await get(visitor, "/compare-experiments?ids=first,second&all=1")
    assert "trialConcurrency" in everything.text and "show only differences" in everything.text


async def test_chart_has_its_experiments(visitor: httpx.AsyncClient, world: World) -> None:
    await two(world)
    (told,) = (await get(visitor, "/compare-experiments?ids=second,first")).values("figure", "data-experiments")
    assert json.loads(told) == [{"id": "second", "name": "two"}, {"id": "first", "name": "one"}]


async def test_secrets_are_masked(visitor: httpx.AsyncClient, world: World) -> None:
    for id_ in ("first", "second"):
        await world.add(id_, canonical={"trainingService": {"platform": "openpai", "token": f"s3cret-{id_}"}})
    answer = await visitor.get("/compare-experiments?ids=first,second&all=1")
    assert "trainingService.token" in answer.text and "s3cret" not in answer.text


async def test_fewer_than_two_ids_show_the_form(visitor: httpx.AsyncClient, world: World) -> None:
    assert "A comparison needs two experiments" in (await get(visitor, "/compare-experiments")).text
    await two(world)
    page = await get(visitor, "/compare-experiments?ids=second,second")
    assert sorted(page.values("input", "value")) == ["first", "second"]
    ticked = [attrs["value"] for tag, attrs in page.tags if tag == "input" and "checked" in attrs]
    assert ticked == ["second"]
    assert "best result" in (await get(visitor, "/compare-experiments?ids=first&ids=second")).text


@pytest.mark.parametrize(
    ("ids", "status", "words"),
    [("first,a/b", 404, "is not an experiment id"), ("first,gone", 404, "gone"), ("a,b,c,d,e,f", 400, "at most 5")],
)
async def test_refusals_say_why(visitor: httpx.AsyncClient, world: World, ids: str, status: int, words: str) -> None:
    await two(world)
    assert words in (await get(visitor, f"/compare-experiments?ids={ids}", status)).text


async def test_unreadable_experiment_does_not_hide_the_others(visitor: httpx.AsyncClient, world: World) -> None:
    await two(world)
    (await world.add("vanished")).remove()
    page = await get(visitor, "/compare-experiments?ids=vanished,first,second")
    assert "vanished cannot be compared" in page.text and "maxTrialNumber 10 20" in page.text
