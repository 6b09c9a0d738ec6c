"""The list of experiments: filter, order, pages and archive from the index; forms for labels and deleting."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.scheduler.experiments.closed import ClosedExperiments
from nni_manager.store.folder import Folder, Ownership
from nni_manager.store.index import index, list_summary
from nni_manager.store.index.labels import Labels
from tests.api.world import World
from tests.web.test_pages import create, get

pytestmark = pytest.mark.unit


async def many(world: World, count: int, directory: Path = Path("/elsewhere")) -> None:
    """Closed experiments only in the index, without folders, so that none can be opened."""
    await world.add("seeded")
    seeded = await world.supervisor.index.read(lambda c: index.get(c, "seeded"))

    def put(connection: Any) -> None:
        index.remove(connection, "seeded")
        for number in range(count):
            results = json.loads(seeded.results)
            results["best"]["value"] = (number * 37) % count
            results |= {"course": [3.0, 2.0, 1.0], "exec_ms": 60_000 * number}
            entry = replace(
                seeded,
                id=f"e{number:05}",
                name=f"{('tpe', 'grid')[number % 2]}-{number}",
                folder=Folder(directory / f"e{number:05}"),
                status=(ExperimentStatus.STOPPED, ExperimentStatus.DONE)[number % 2],
                platform=("local", "remote,openpai")[number % 2],
                created_ms=seeded.created_ms + number,
                results=json.dumps(results),
                labels=Labels(tags=("paper",) if number % 10 == 0 else (), notes="New Data" if number == 7 else ""),
            )
            index.put(connection, entry)
        shutil.rmtree(seeded.folder.path, ignore_errors=True)

    await world.supervisor.index.write(put)


async def shown(visitor: httpx.AsyncClient, query: str = "") -> list[str]:
    """The ids on a page of the list, in order."""
    links = (await get(visitor, f"/?{query}")).values("a", "id")
    return [link.removeprefix("open-") for link in links if link.startswith("open-")]


async def test_thousand_experiments_are_listed_without_opening_one(
    visitor: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await many(world, 1000)

    async def refuse(*_: object) -> None:
        raise AssertionError("a database was opened")

    monkeypatch.setattr(ClosedExperiments, "read", refuse)
    first = await shown(visitor)
    assert first == [f"e{number:05}" for number in range(999, 949, -1)], "newest first, fifty on a page"
    assert await shown(visitor, "page=20") == [f"e{number:05}" for number in range(49, -1, -1)]
    assert (await shown(visitor, "sort=-best"))[0] == "e00027", "27 × 37 is 999"
    assert (await shown(visitor, "sort=duration"))[:2] == ["e00000", "e00001"]
    assert (await shown(visitor, "sort=name"))[:2] == ["e00001", "e00101"]
    assert len(await shown(visitor, "tag=paper&page=2")) == 50
    assert await shown(visitor, "q=new+data") == ["e00007"], "every word, ignoring case, also in notes"
    assert (await shown(visitor, "q=grid-99&status=DONE&platform=openpai"))[-1] == "e00099"
    assert await shown(visitor, "q=grid&status=STOPPED") == []
    page = await get(visitor, "/?platform=remote")
    for words in ("500 of 1000 experiments", "Page 1 of 10", "4 of 10", "16 h 39 min"):
        assert words in page.text, words
    assert any(point.count(",") == 3 for point in page.values("polyline", "points")), "the best so far"
    assert any("page=2" in href and "platform=remote" in href for href in page.values("a", "href"))


async def test_order_by_result_parses_each_once_outside_the_loop(
    visitor: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await many(world, 5000, world.data)
    here, looked, parsed = threading.get_ident(), [], []
    require, parse = Folder.require_database, list_summary.parse

    def look(folder: Folder) -> Path:
        looked.append(threading.get_ident())
        return require(folder)

    def read(text: str) -> list_summary.ListSummary | None:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(Folder, "require_database", look)
    monkeypatch.setattr(list_summary, "parse", read)
    for sort in ("-best", "trials", "duration"):
        page = await get(visitor, f"/?sort={sort}")
        assert page.text.count(" is gone: ") == 50, "on each row that is shown"
    assert len(parsed) == 5000, "each once"
    assert here not in looked and 0 < len(looked) <= 3 * 50


async def test_invisible_name_is_linked_by_its_id(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded", experimentName="\u200b")
    assert "><bdi>seeded</bdi></a>" in (await visitor.get("/")).text


async def test_archived_experiments_are_hidden_by_default(visitor: httpx.AsyncClient, world: World) -> None:
    for id_ in ("first", "second"):
        await world.add(id_)
    answer = await visitor.post("/experiments/first/archive", data={"archived": "1", "list": "q=digits"})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/?q=digits")
    assert await shown(visitor) == ["second"]
    assert "1 archived" in (await get(visitor, "/")).text
    assert sorted(await shown(visitor, "archived=with")) == ["first", "second"]
    assert await shown(visitor, "archived=only") == ["first"]
    await visitor.post("/experiments/first/archive", data={"archived": "0"})
    assert sorted(await shown(visitor)) == ["first", "second"]


async def test_name_notes_and_tags_are_changed_in_a_form(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("closed1")
    open_id = await create(world, visitor)
    for id_ in ("closed1", open_id):
        fields = {"name": "renamed", "tags": "paper, , gpu", "notes": "first line\r\nsecond"}
        answer = await visitor.post(f"/experiments/{id_}/about", data=fields)
        assert (answer.status_code, answer.headers["Location"]) == (303, f"/experiments/{id_}")
        page = await get(visitor, f"/experiments/{id_}/about")
        assert page.values("input", "value") == ["renamed", "paper, gpu"] and "second" in page.text
    page = await get(visitor, "/")
    assert page.text.count("renamed") >= 2 and "first line" in page.text and "/?tag=gpu" in page.values("a", "href")
    wrong = await visitor.post("/experiments/closed1/about", data={"name": "n", "tags": "x" * 41, "notes": "kept"})
    assert wrong.status_code == 400 and "1 to 40 characters" in wrong.text and "kept" in wrong.text
    assert "renamed" in (await get(visitor, "/experiments/closed1/about")).text, "nothing is stored"


async def test_typed_text_remains_if_it_cannot_be_stored(visitor: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("closed1")
    typed = {"name": "renamed", "tags": "paper", "notes": "an hour of thoughts"}
    other = Ownership(folder.lock, "the folder")
    taken = await visitor.post("/experiments/closed1/about", data=typed)
    other.release()
    with contextlib.closing(sqlite3.connect(world.data / "index.sqlite", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        away = await visitor.post("/experiments/closed1/about", data={**typed, "name": "digits"})
    assert (taken.status_code, away.status_code) == (409, 503)
    for answer in (taken, away):
        assert "an hour of thoughts" in answer.text and 'value="paper"' in answer.text and 'role="alert"' in answer.text


async def test_delete_names_what_it_removes_and_asks(visitor: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    page = await get(visitor, "/experiments/seeded/delete")
    assert str(folder.path) in page.text and "cannot be undone" in page.text and folder.path.exists()
    answer = await visitor.post("/experiments/seeded/delete")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/") and not folder.path.exists()
    assert await shown(visitor) == []
    open_id = await create(world, visitor)
    assert "Stop it before you delete it" in (await get(visitor, f"/experiments/{open_id}/delete")).text
    assert (await visitor.post(f"/experiments/{open_id}/delete")).status_code == 409


async def test_rows_have_the_buttons_of_their_state(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("closed1")
    open_id = await create(world, visitor)
    actions = [one for one in (await get(visitor, "/")).values("form", "action") if "/experiments/" in one]
    assert f"/experiments/{open_id}/stop" in actions and "/experiments/closed1/resume" in actions
    assert f"/experiments/{open_id}/resume" not in actions and "/experiments/closed1/stop" not in actions
    answer = await visitor.post(f"/experiments/{open_id}/stop", data={"list": "sort=name"})
    assert answer.headers["Location"] == "/?sort=name"
    answer = await visitor.post("/experiments/closed1/resume", data={"list": "//evil.example"})
    assert answer.headers["Location"] == "/?//evil.example", "never to another site"
    assert world.commands.at_work("closed1") is not None, "a stopped one is opened without a command"


@pytest.mark.parametrize(
    ("query", "words"),
    [("sort=size", "sort:"), ("status=BUSY", "status:"), ("archived=yes", "archived:"), ("page=0", "page:")],
)
async def test_invalid_query_is_refused_with_a_reason(visitor: httpx.AsyncClient, query: str, words: str) -> None:
    assert words in (await get(visitor, f"/?{query}", 400)).text


async def test_empty_list_has_commands_and_a_form(visitor: httpx.AsyncClient) -> None:
    page = await get(visitor, "/")
    copied = page.values("button", "data-copy")
    assert len(copied) == 3 and all(command.startswith("nnictl ") for command in copied)
    assert "/new" in page.values("a", "href")
