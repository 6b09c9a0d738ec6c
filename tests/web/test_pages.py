"""The pages' HTML: content, refusals, buttons."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from nni_manager.domain.errors import NniManagerError, PlatformUnavailable, StoreUnavailable
from nni_manager.domain.experiment import ExperimentStatus, ExperimentWarning, Hold, HoldCode
from nni_manager.store.folder import Ownership
from nni_manager.store.index import index
from tests.api.world import World

pytestmark = pytest.mark.unit


class Page(HTMLParser):
    """Text, links and forms of a page; fails on tags that do not match."""

    VOID = frozenset({"meta", "link", "input", "br", "img"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self._texts: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self._texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._texts).split())

    def values(self, tag: str, attribute: str) -> list[str]:
        return [value for name, attrs in self.tags if name == tag and (value := attrs.get(attribute)) is not None]


async def get(visitor: httpx.AsyncClient, path: str, status: int = 200) -> Page:
    answer = await visitor.get(path)
    assert answer.status_code == status and answer.headers["content-type"] == "text/html; charset=utf-8", answer.text
    return Page(answer.text)


async def create(world: World, visitor: httpx.AsyncClient, **fields: Any) -> str:
    return str((await visitor.post("/api/v1/experiments", json=world.config(**fields))).json()["id"])


async def test_empty_list_states_the_next_step(visitor: httpx.AsyncClient) -> None:
    assert "nnictl create" in (await get(visitor, "/")).text


async def test_lone_surrogate_in_parameters_is_escaped(visitor: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    record = r'{"parameter_id": 0, "parameter_source": "algorithm", "parameters": {"x": "\ud800"}}'
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        connection.execute("UPDATE trials SET record = ?", [record])
    assert r"\ud800" in (await get(visitor, "/experiments/seeded")).text
    assert r"\ud800" in (await get(visitor, "/experiments/seeded/trials")).text
    assert (await visitor.get("/api/v1/experiments/seeded")).json()["best"]["parameters"] == {"x": "\ud800"}
    for path in ("/api/v1/experiments/seeded/trials", "/experiments/seeded/api/v1/nni/trial-jobs"):
        assert (await visitor.get(path)).status_code == 200


async def test_list_shows_status_progress_and_hold(visitor: httpx.AsyncClient, world: World) -> None:
    hold = Hold(code=HoldCode.SAME_FAILURE, sentence="the first five trials failed alike")
    await world.add("seeded", status=ExperimentStatus.VIEWED)
    await world.add("held", status=ExperimentStatus.RUNNING)
    world.supervisor.not_opened["held"] = hold
    gone = await world.add("vanished")
    gone.remove()
    page = await get(visitor, "/")
    assert "/experiments/seeded" in page.values("a", "href")
    for words in (
        "digits",
        "VIEWED",
        "ON HOLD",
        "the first five trials failed alike",
        "local",
        "4 of 10",
        str(gone.path),
    ):
        assert words in page.text


async def test_long_lists_have_pages(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded", extra_trials=60)
    first = await get(visitor, "/experiments/seeded/trials?sort=number")
    assert "Page 1 of 2" in first.text and "good1" in first.text and "e0059" not in first.text
    (following,) = [href for href in first.values("a", "href") if "page=2" in href]
    assert "sort=number" in following
    second = await get(visitor, following)
    assert "Page 2 of 2" in second.text and "e0059" in second.text and "good1" not in second.text


async def test_experiment_page_shows_everything(visitor: httpx.AsyncClient, world: World) -> None:
    hold = Hold(code=HoldCode.TUNER_RAISED, sentence="the tuner raised ValueError", details="Traceback <here>")
    folder = await world.add("seeded", status=ExperimentStatus.ERROR, maxExperimentDuration="2h")
    world.supervisor.not_opened["seeded"] = hold
    page = await get(visitor, "/experiments/seeded")
    for words in (
        "on hold: the tuner raised ValueError TUNER_RAISED",
        "Traceback <here>",
        "4 of 10",
        "0.875",
        "x 0.25 layers [8, 4]",
        "1 min 0 s",
        "(limit: 2h)",
        "waits for a free slot",
        str(folder.path),
    ):
        assert words in page.text, words
    table = (await get(visitor, "/experiments/seeded/trials")).text
    failure = "its command failed, exit code 1: ValueError: no data (USER_CODE)"
    for words in ("NaN", "-Infinity", failure, "waits for a free slot", "[8, 4]"):
        assert words in table, words


async def test_page_shows_warnings(visitor: httpx.AsyncClient, world: World) -> None:
    hold = Hold(code=HoldCode.TUNER_RAISED, sentence="the tuner raised ValueError")
    await world.add("seeded", hold=hold)
    warning = ExperimentWarning(code="TRIAL_PORT_MOVED", message="the trial listener is <elsewhere>")
    world.supervisor.shared.warnings.set("seeded", warning)
    page = await get(visitor, "/experiments/seeded")
    for words in ("it was on hold when it was closed: the tuner raised ValueError", warning.message, warning.code):
        assert words in page.text, words
    assert "on hold: " not in page.text


async def test_trial_text_is_escaped(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded", experimentName="<script>alert(1)</script>")
    for path in (
        "/",
        *(f"/experiments/seeded{tab}" for tab in ("", "/trials", "/config", "/log", "/compare?selected=0,3")),
    ):
        answer = await visitor.get(path)
        assert "<script>alert" not in answer.text and "<b>bold" not in answer.text
    assert "<b>bold</b>" in (await get(visitor, "/experiments/seeded/trials")).text
    missing = await visitor.get("/<script>")
    assert missing.status_code == 404 and "<script>" not in missing.text


async def test_trials_are_sorted_and_filtered_by_link(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")

    async def order(query: str) -> list[str]:
        answer = await visitor.get(f"/experiments/seeded/trials?{query}")
        return re.findall(r'<td class="col-id"><code>(\w+)</code>', answer.text)

    assert (await order("sort=-result"))[:1] == ["good1"]
    assert await order("sort=number") == ["good1", "nannn", "infin", "fails", "waits"]
    assert await order("status=FAILED") == ["fails"]
    page = await get(visitor, "/experiments/seeded/trials?sort=-result")
    sorts = [attrs["aria-sort"] for tag, attrs in page.tags if tag == "th" and "aria-sort" in attrs]
    assert [sort for sort in sorts if sort != "none"] == ["descending"]
    assert "/experiments/seeded/trials?sort=result" in page.values("a", "href")


@pytest.mark.parametrize(
    "query", ["sort=random", "status=BORED", "page=0", "page=x", "page=-1", "page=" + "9" * 30, "p.x=.."]
)
async def test_invalid_query_is_refused_with_a_reason(visitor: httpx.AsyncClient, world: World, query: str) -> None:
    await world.add("seeded")
    page = await get(visitor, f"/experiments/seeded/trials?{query}", 400)
    assert query.partition("=")[0] + ": " in page.text


@pytest.mark.parametrize(
    "path",
    [
        "/experiments/unknown1",
        "/experiments/no.id",
        "/nothing",
        "/static/../pages.py",
        "/static/%2e%2e/pages.py",
        "/experiments/..%2f..",
        "/experiments/",
    ],
)
async def test_unknown_pages_are_not_found(visitor: httpx.AsyncClient, path: str) -> None:
    assert "All experiments" in (await get(visitor, path, 404)).text


async def test_pages_load_only_own_external_files(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    for path in ("/", "/experiments/seeded", "/experiments/seeded/trials"):
        answer = await visitor.get(path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "script-src 'self';" in policy and "unsafe-eval" not in policy
        page = Page(answer.text)
        sources = page.values("script", "src") + page.values("link", "href") + page.values("a", "href")
        assert sources and not [source for source in sources if "//" in source]
        assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
        for source in page.values("script", "src") + page.values("link", "href"):
            assert (await visitor.get(source)).status_code == 200, source


async def test_buttons_stop_and_resume(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor)
    page = await get(visitor, f"/experiments/{id_}")
    assert [one for one in page.values("form", "action") if one] == [f"/experiments/{id_}/stop"]
    answer = await visitor.post(f"/experiments/{id_}/stop", data={"back": "trials?sort=number"})
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/experiments/{id_}/trials?sort=number")
    stopped = await get(visitor, answer.headers["Location"])
    assert "STOPPED" in stopped.text
    (resume,) = [one for one in stopped.values("form", "action") if "resume" in one]
    assert (await visitor.post(resume)).status_code == 303
    assert "RUNNING" in (await get(visitor, f"/experiments/{id_}")).text


async def test_trial_is_killed_by_its_button(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor)
    added = await visitor.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {"x": 1}})
    trial_id = added.json()["id"]
    page = await get(visitor, f"/experiments/{id_}/trials")
    (kill,) = [one for one in page.values("button", "formaction") if one.endswith(f"{trial_id}/kill")]
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    with experiment.changes.watch() as news:
        assert (await visitor.post(kill)).status_code == 303
        # the counts of a page are read a moment after its rows: one may have ended in between
        while kill in (found := await get(visitor, f"/experiments/{id_}/trials")).values("button", "formaction"):
            await news.wait()
            news.clear()
    assert trial_id in found.text and "USER_CANCELED" in found.text


async def test_failed_button_states_the_reason(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    page = await visitor.post("/experiments/seeded/trials/waits/kill")
    assert page.status_code == 409 and "seeded is stopped" in Page(page.text).text
    for path in (
        "/experiments/unknown1/stop",
        "/experiments/unknown1/resume",
        "/experiments/seeded/trials/a.b/kill",
        "/experiments/seeded/trials/x/kill",
    ):
        assert (await visitor.post(path)).status_code == 404


async def test_folder_of_another_manager_is_a_conflict(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor)
    await visitor.post(f"/experiments/{id_}/stop")
    folder = (await world.commands.entry(id_)).folder
    other = Ownership(folder.lock, "the folder")
    page = await visitor.post(f"/experiments/{id_}/resume")
    other.release()
    assert page.status_code == 409 and "is in use by process" in Page(page.text).text


async def test_buttons_ignore_other_sites_and_links(visitor: httpx.AsyncClient, world: World) -> None:
    id_ = await create(world, visitor)
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}):
        assert (await visitor.post(f"/experiments/{id_}/stop", headers=headers)).status_code == 403
    own = {"Origin": "http://localhost:8080"}
    assert (await visitor.get(f"/experiments/{id_}/stop")).status_code == 405
    assert world.commands.at_work(id_) is not None
    assert (await visitor.post(f"/experiments/{id_}/stop", headers=own)).status_code == 303


async def test_pages_below_a_prefix_link_below_it(world: World) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from nni_manager.web.pages import PagesContext, create_pages

    await world.add("seeded")
    pages = create_pages(PagesContext(commands=world.commands, version="1", analysis=world.analysis))
    async with world.calling(Starlette(routes=[Mount("/nni", pages)])) as visitor:
        pages = [
            await get(visitor, f"/nni/experiments/seeded{tab}")
            for tab in ("", "/trials", "/config", "/log", "/compare?selected=0,3")
        ]
    for page in pages:
        check_links(page)


def check_links(page: Page) -> None:
    links = page.values("a", "href") + page.values("form", "action") + page.values("link", "href")
    assert [link for link in links if not link.startswith(("/nni/", "#"))] == []


@pytest.mark.parametrize("kind", [PlatformUnavailable, StoreUnavailable])
async def test_refused_button_is_not_a_server_error(
    world: World, visitor: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, kind: type[NniManagerError]
) -> None:
    async def refuse(id: str) -> None:
        raise kind("the local keeper is unreachable")

    await world.add("seeded")
    monkeypatch.setattr(world.commands, "stop", refuse)
    answer = await visitor.post("/experiments/seeded/stop")
    assert answer.status_code == 503 and "the local keeper is unreachable" in Page(answer.text).text


async def test_best_names_the_source_of_its_direction(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded", tuner={"name": "TPE"})
    page = await get(visitor, "/experiments/seeded")
    assert "Best ↓ lowest: default of TPE" in page.text
    assert "optimize_mode: not set, so the lowest result counts as best (default of TPE)" in page.text
    listed = await get(visitor, "/")
    assert "lowest: default of TPE" in listed.values("span", "title")


async def test_several_objectives_have_no_arrow(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded", tuner={"name": "TPE"}, objectives={"loss": "minimize", "f1": "maximize"})
    page = await get(visitor, "/experiments/seeded")
    assert "Best" in page.text and "↓" not in page.text and "↑" not in page.text


async def test_closed_done_experiment_is_shown_as_done(visitor: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        connection.execute("UPDATE experiment SET ended_as = 'DONE'")
    await world.supervisor.index.write(lambda c: index.put(c, index.read_folder(folder)))
    for path in ("/", "/experiments/seeded"):
        assert "DONE (closed)" in (await get(visitor, path)).text
