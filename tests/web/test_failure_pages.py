"""The page of failures: kinds of failure, their trials, parameter ranges, the log of an example."""

from __future__ import annotations

import contextlib
import sqlite3

import httpx
import pytest

from nni_manager.analysis.service import Analysis
from nni_manager.domain.errors import AnalysisUnavailable
from tests.api.world import World
from tests.web.test_pages import get

pytestmark = pytest.mark.unit

KEY = "USER_CODE, exit code 1: ValueError: <b>#</b>"
LINE = "ValueError: <b>7</b>"


async def test_each_kind_of_failure_has_a_row(visitor: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded", extra_trials=3)
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        connection.execute("UPDATE trials SET failure_key = ?, last_words = ? WHERE id = 'fails'", (KEY, LINE))
        connection.execute(
            "UPDATE trials SET status = 'FAILED', failure_key = ?, last_words = ? WHERE id = 'e0001'", (KEY, LINE)
        )
    page = await get(visitor, "/experiments/seeded/failures")
    for words in (
        "2 trials, 1 kind of failure",
        f"2 × {LINE}",
        "trial 3",
        "trial 6",
        "All 2 in the table",
    ):
        assert words in page.text, words
    links = page.values("a", "href")
    (table,) = [link for link in links if "failure=" in link]
    assert {"/experiments/seeded/trials/3", "/experiments/seeded/trials/6"} <= set(links)
    assert "Failures 1" in page.text or "Failures 2" in page.text
    found = await get(visitor, table)
    assert "fails" in found.text and "e0001" in found.text and "good1" not in found.text
    assert "Trials with the same failure" in (await get(visitor, "/experiments/seeded/trials/3")).text


async def test_page_without_failures_has_a_message(visitor: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    with contextlib.closing(sqlite3.connect(folder.database)) as connection, connection:
        connection.execute("UPDATE trials SET status = 'SUCCEEDED' WHERE status = 'FAILED'")
    assert "No trial has failed." in (await get(visitor, "/experiments/seeded/failures")).text


async def test_failed_trials_without_a_reason_are_counted(visitor: httpx.AsyncClient, world: World) -> None:
    """Like trials in folders of NNI."""
    await world.add("seeded")
    page = await get(visitor, "/experiments/seeded/failures")
    assert "1 failed trial has no recorded reason" in page.text and "No trial has failed." not in page.text


async def test_missing_answer_is_explained(
    visitor: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise AnalysisUnavailable("its process ended with signal 9")

    await world.add("seeded")
    monkeypatch.setattr(Analysis, "ask", refuse)
    page = await get(visitor, "/experiments/seeded/failures")
    assert "Failures cannot be grouped now: its process ended with signal 9" in page.text
    assert "0.875" in (await get(visitor, "/experiments/seeded/trials/0")).text
