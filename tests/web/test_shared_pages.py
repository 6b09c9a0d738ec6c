"""Pages that readers share: one is made for all, anew after a change, and not sent again to a browser that has it."""

from __future__ import annotations

import asyncio
import contextlib
import json

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from nni_manager.web import shared_pages
from nni_manager.web.pages import PagesContext
from nni_manager.web.stream import States
from tests.api.world import World
from tests.web.test_pages import create

pytestmark = pytest.mark.unit


class Counted:
    """Counts the pages that are made."""

    def __init__(self) -> None:
        self.made = 0

    async def __call__(self, request: Request) -> Response:
        self.made += 1
        await asyncio.sleep(0)
        return HTMLResponse(f"{request.url.query}")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """In the place of every shared page."""
    made, answer = Counted(), shared_pages.SharedPages.answer
    monkeypatch.setattr(shared_pages.SharedPages, "answer", lambda self, request, _: answer(self, request, made))
    return made


async def test_one_page_is_made_for_all_readers(visitor: httpx.AsyncClient, world: World, counted: Counted) -> None:
    id_ = await create(world, visitor)
    pages = await asyncio.gather(*(visitor.get(f"/experiments/{id_}") for _ in range(20)))
    assert {page.status_code for page in pages} == {200} and counted.made == 1
    await visitor.get(f"/experiments/{id_}?selected=1")
    assert counted.made == 2
    experiment = world.service.at_work(id_)
    assert experiment is not None
    experiment.changes.note()
    await visitor.get(f"/experiments/{id_}")
    assert counted.made == 3


async def test_a_page_is_made_anew_after_a_second(
    visitor: httpx.AsyncClient, world: World, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await create(world, visitor)
    monkeypatch.setattr(shared_pages, "_FRESH_S", 0)
    for _ in range(3):
        await visitor.get(f"/experiments/{id_}")
    assert counted.made == 3


async def test_a_page_that_the_browser_has_is_not_sent_again(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor)
    path = f"/experiments/{id_}/trials"
    page = await visitor.get(path)
    again = await visitor.get(path, headers={"If-None-Match": f"W/{page.headers['etag']}"})
    assert (again.status_code, again.content) == (304, b"")
    added = (await visitor.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 0.5}})).json()["id"]
    changed = await visitor.get(path, headers={"If-None-Match": page.headers["etag"]})
    assert changed.status_code == 200 and added in changed.text


@pytest.mark.parametrize(("readers", "pause_ms"), [(1, 1000), (30, 3000)])
async def test_charts_of_many_readers_ask_more_seldom(
    visitor: httpx.AsyncClient, world: World, readers: int, pause_ms: int
) -> None:
    id_ = await create(world, visitor)
    states = States(PagesContext(service=world.service, version="1", analysis=world.analysis))
    with contextlib.ExitStack() as stack:
        for _ in range(readers):
            stack.enter_context(states.watch(id_))
        part = await states.read(id_)
    assert json.loads(part.text.partition("data: ")[2])["chartPauseMs"] == pause_ms
