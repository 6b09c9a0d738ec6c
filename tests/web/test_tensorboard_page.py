"""The page of an experiment's TensorBoards."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from tests.api.tensorboard_program import install
from tests.api.world import World

pytestmark = pytest.mark.unit

PAGE = "/experiments/seeded/tensorboard"


async def test_tensorboard_is_started_and_stopped(
    visitor: httpx.AsyncClient, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    await world.add("seeded")
    try:
        answer = await visitor.post(PAGE, data={"trials": "0"})
        assert answer.status_code == 303, answer.text
        (board,) = world.commands.tensorboards.of("seeded")
        text = (await visitor.get(PAGE)).text
        assert f'href="{board.url}"' in text and "No TensorBoard runs" not in text
        assert (await visitor.post(f"{PAGE}/{board.id}/stop")).status_code == 303
        assert "No TensorBoard runs" in (await visitor.get(PAGE)).text
    finally:
        await world.commands.tensorboards.close()


@pytest.mark.parametrize(
    ("trials", "words"), [("one", "must be trial numbers"), ("999", "999"), ("0", "not installed")]
)
async def test_errors_are_shown_next_to_the_form(
    visitor: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch, trials: str, words: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    await world.add("seeded")
    answer = await visitor.post(PAGE, data={"trials": trials})
    assert answer.status_code == 400 and words in answer.text and f'value="{trials}"' in answer.text


async def test_heading_of_the_experiment_links_to_the_tab(visitor: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    assert f'href="{PAGE}"' in (await visitor.get("/experiments/seeded")).text
