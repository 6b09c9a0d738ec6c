"""Experiments in a place that cannot be written, such as a mounted backup."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.folder import Folder
from tests.api.world import World

EXPERIMENTS = "/api/v1/experiments"
OLDER = Path(__file__).parents[1] / "store" / "databases_1" / "experiment.sql"


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Path]:
    mount = tmp_path / "place"
    mount.mkdir()
    await _run("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(mount))
    yield mount
    await _run("umount", "--lazy", str(mount))


async def _run(*command: str) -> None:
    assert await (await asyncio.create_subprocess_exec(*command)).wait() == 0


@pytest.mark.machines
@pytest.mark.acceptance
@pytest.mark.parametrize("is_older", [False, True])
async def test_experiment_in_a_read_only_place_is_viewed(
    world: World, api: httpx.AsyncClient, place: Path, is_older: bool
) -> None:
    original = await world.add("exp1")
    if is_older:
        _make_older(original)
    for beside in original.database.parent.glob("nni.sqlite-*"):  # of a reader; with these it could be read
        beside.unlink()
    shutil.move(original.path, place / "exp1")
    await _run("mount", "-o", "remount,ro", str(place))
    viewed = await api.post(f"{EXPERIMENTS}/view", json={"id": "exp1", "workingDirectory": str(place)})
    assert viewed.status_code == 200, viewed.text
    assert (await world.commands.entry("exp1")).status is ExperimentStatus.VIEWED
    answer = await api.get(f"{EXPERIMENTS}/exp1/trials")
    assert (answer.status_code, len(answer.json()["trials"]) > 0) == (200, True), answer.text


def _make_older(folder: Folder) -> None:
    folder.database.unlink()
    with closing(sqlite3.connect(folder.database)) as connection:
        connection.executescript(OLDER.read_text())
        connection.execute("PRAGMA journal_mode = WAL")
