"""Configs that take long to parse: one at a time, within a time limit, and only while the request is open."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from nni_manager.api import submission
from nni_manager.config import experiment_file
from nni_manager.config.reading import document
from nni_manager.config.reading.document import Unreadable
from nni_manager.config.reading.source import LARGE_CHARACTERS
from nni_manager.domain.errors import ConfigInvalid, Problem
from tests.api.world import World

pytestmark = pytest.mark.unit

EXPERIMENTS = "/api/v1/experiments"
YAML = {"Content-Type": "application/yaml"}
LARGE = b"#" * (LARGE_CHARACTERS + 1)


class Reading:
    """Replaces the config parser; runs until the request is cancelled, or until released."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.ended = threading.Event()
        self.now = self.most = 0

    def load(self, *_: object, **__: object) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        self.began.release()
        patience = document.patience.get()
        assert patience is not None
        try:
            while not self.let_go.wait(0.005):
                patience.check(1)
        except Unreadable as error:
            raise ConfigInvalid([Problem(message=error.message)]) from None
        finally:
            self.now -= 1
            self.ended.set()
        raise ConfigInvalid([Problem(message="was read")])


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    reading = Reading()
    monkeypatch.setattr(experiment_file, "read", reading.load)
    return reading


async def began(reading: Reading) -> None:
    assert await asyncio.to_thread(reading.began.acquire, timeout=5)


async def test_parsing_ends_when_the_request_is_cancelled(api: httpx.AsyncClient, reading: Reading) -> None:
    """As when the daemon ends: a thread that goes on would delay it."""
    asking = asyncio.create_task(api.post(EXPERIMENTS, content=LARGE, headers=YAML))
    await began(reading)
    asking.cancel()
    await asyncio.wait({asking})
    assert await asyncio.to_thread(reading.ended.wait, 5)


async def test_parsing_has_a_time_limit(
    api: httpx.AsyncClient, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "PATIENCE_S", 0.05)
    answer = await api.post(EXPERIMENTS, content=LARGE, headers=YAML)
    assert answer.status_code == 400 and "takes longer than 0.05 s" in answer.json()["error"]


@pytest.mark.parametrize(("body", "most"), [(LARGE, 1), (b"a: 1", 3)])
async def test_large_configs_are_parsed_one_at_a_time(
    api: httpx.AsyncClient, reading: Reading, body: bytes, most: int
) -> None:
    asking = [asyncio.create_task(api.post(EXPERIMENTS, content=body, headers=YAML)) for _ in range(3)]
    for _ in range(most):
        await began(reading)
    assert (await api.get(EXPERIMENTS)).status_code == 200
    reading.let_go.set()
    assert {(await one).status_code for one in asking} == {400} and reading.most == most


async def test_a_body_that_merges_without_end_is_refused(api: httpx.AsyncClient, world: World) -> None:
    large = "a: &a {" + ", ".join(f"k{number}: 1" for number in range(20_000)) + "}\nb:\n"
    answer = await api.post(EXPERIMENTS, content=(large + "- {<<: *a}\n" * 60_000).encode(), headers=YAML)
    assert answer.status_code == 400 and "holds more than" in answer.json()["error"]
