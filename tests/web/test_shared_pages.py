"""Shared pages: rendered once for all readers, again after a change, and not sent to a browser that has them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from types import SimpleNamespace

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from nni_manager.web import shared_pages
from nni_manager.web.pages import PagesContext
from nni_manager.web.shared_pages import Endpoint, SharedPages, State
from nni_manager.web.stream import States
from tests.api.services import shown
from tests.api.world import World
from tests.web.test_pages import create

pytestmark = pytest.mark.unit


class Counted:
    """Counts rendered pages."""

    def __init__(self) -> None:
        self.made = 0
        self.asked: asyncio.Queue[None] = asyncio.Queue()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def __call__(self, request: Request) -> Response:
        self.made += 1
        made = self.made
        await self.may_go_on.wait()
        return HTMLResponse(f"{made}")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Replaces every shared page."""
    made, kept = Counted(), SharedPages.answer

    async def answer(self: SharedPages, request: Request, _: Endpoint, state: State) -> Response:
        made.asked.put_nowait(None)
        return await kept(self, request, made, state)

    monkeypatch.setattr(SharedPages, "answer", answer)
    return made


async def test_page_is_rendered_once_for_all_readers(
    visitor: httpx.AsyncClient, world: World, counted: Counted
) -> None:
    id_ = await up(visitor, world)
    pages = await asyncio.gather(*(visitor.get(f"/experiments/{id_}") for _ in range(20)))
    assert {page.status_code for page in pages} == {200} and counted.made == 1
    await visitor.get(f"/experiments/{id_}?selected=1")
    assert counted.made == 2
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    experiment.changes.note()
    await visitor.get(f"/experiments/{id_}")
    assert counted.made == 3


@pytest.mark.parametrize(
    "path", ["/", "/?sort=name", "/platforms", *(f"/experiments/{{id}}/{tab}" for tab in ("failures", "config"))]
)
async def test_other_tabs_are_shared_too(
    visitor: httpx.AsyncClient, world: World, counted: Counted, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(shared_pages, "_FRESH_S", 60)
    id_ = await up(visitor, world)
    for made in (1, 2):
        pages = await asyncio.gather(*(visitor.get(path.format(id=id_)) for _ in range(20)))
        assert {page.status_code for page in pages} == {200} and counted.made == made
        experiment = world.commands.at_work(id_)
        assert experiment is not None
        experiment.changes.note()


async def test_tensorboard_tab_is_shared_until_a_board_changes(
    visitor: httpx.AsyncClient, world: World, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_pages, "_FRESH_S", 60)
    id_ = await up(visitor, world)
    for boards in ([], [SimpleNamespace(id="abc123", status="RUNNING")], []):
        monkeypatch.setattr(world.commands.tensorboards, "of", lambda _, boards=boards: boards)
        await asyncio.gather(*(visitor.get(f"/experiments/{id_}/tensorboard") for _ in range(20)))
    assert counted.made == 3, "one for each"


async def up(visitor: httpx.AsyncClient, world: World) -> str:
    """A started experiment without spontaneous changes."""
    id_ = await create(world, visitor)
    await shown(visitor, id_, lambda one: [service["status"] for service in one["services"]] == ["up"])
    return id_


async def test_requests_during_rendering_share_the_next_page(
    visitor: httpx.AsyncClient, world: World, counted: Counted
) -> None:
    """Frequent changes do not cause parallel renderings; each reader gets a page started after its request."""
    id_ = await up(visitor, world)
    counted.may_go_on.clear()
    asked = [asyncio.ensure_future(visitor.get("/"))]
    await counted.asked.get()
    for _ in range(20):
        world.commands.changes.note()
        asked.append(asyncio.ensure_future(visitor.get("/")))
        await counted.asked.get()
    counted.may_go_on.set()
    assert [answer.text for answer in await asyncio.gather(*asked)] == ["1", *["2"] * 20]
    assert counted.made == 2 and world.commands.at_work(id_) is not None


async def test_page_is_rendered_again_after_a_second(
    visitor: httpx.AsyncClient, world: World, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await create(world, visitor)
    monkeypatch.setattr(shared_pages, "_FRESH_S", 0)
    for _ in range(3):
        await visitor.get(f"/experiments/{id_}")
    assert counted.made == 3


async def test_page_in_the_browser_is_not_sent_again(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor)
    path = f"/experiments/{id_}/trials"
    page = await visitor.get(path)
    again = await visitor.get(path, headers={"If-None-Match": f"W/{page.headers['etag']}"})
    assert (again.status_code, again.content) == (304, b"")
    added = (await visitor.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 0.5}})).json()["id"]
    changed = await visitor.get(path, headers={"If-None-Match": page.headers["etag"]})
    assert changed.status_code == 200 and added in changed.text


@pytest.mark.parametrize(("readers", "pause_ms"), [(1, 1000), (30, 3000)])
async def test_charts_of_many_readers_ask_less_often(
    visitor: httpx.AsyncClient, world: World, readers: int, pause_ms: int
) -> None:
    id_ = await create(world, visitor)
    states = States(PagesContext(commands=world.commands, version="1", analysis=world.analysis))
    with contextlib.ExitStack() as stack:
        for _ in range(readers):
            stack.enter_context(states.watch(id_))
        part = await states.read(id_)
    assert json.loads(part.text.partition("data: ")[2])["chartPauseMs"] == pause_ms
