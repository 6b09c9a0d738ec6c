"""Streams of events by themselves: their text and their pace. `tests/api/test_api_events.py` has those of the API."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractContextManager, nullcontext

import pytest

from nni_manager.streams import event_stream
from nni_manager.streams.event_stream import EventStream, Part, event
from tests.streams.stream import Stream

pytestmark = pytest.mark.unit


class Counter:
    """A subject that changes at every read."""

    def __init__(self, states: int) -> None:
        self._left = states
        self._news = asyncio.Event()
        self.read_at: list[float] = []

    def watch(self) -> AbstractContextManager[asyncio.Event]:
        return nullcontext(self._news)

    async def read(self) -> Part:
        self.read_at.append(asyncio.get_running_loop().time())
        self._left -= 1
        self._news.set()
        return Part(text=event("state", "{}"), is_last=self._left == 0)


def test_data_is_one_line_for_every_reader() -> None:
    """Many libraries part lines at characters that end none in a stream of events."""
    name = "a\x85b\u2028c\u2029d\x1ce é"
    text = event("state", json.dumps({name: 1}, ensure_ascii=False))
    (data,) = (line for line in text.splitlines() if line.startswith("data:"))
    assert json.loads(data[5:]) == {name: 1} and "é" in data


async def test_at_most_five_events_a_second() -> None:
    counter, stream = Counter(4), Stream()
    await EventStream(counter, asyncio.Event())({"type": "http"}, stream.receive, stream.send)  # type: ignore[arg-type]
    gaps = [later - earlier for earlier, later in zip(counter.read_at, counter.read_at[1:], strict=False)]
    assert len(gaps) == 3 and min(gaps) >= event_stream.PAUSE_S * 0.95
