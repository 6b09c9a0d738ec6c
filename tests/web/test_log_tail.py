"""The end of a log as events: growing, shrinking, missing, fast and remote logs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from nni_manager.domain.errors import InvalidInput, PlatformUnavailable
from nni_manager.scheduler.experiments import attempt_logs
from nni_manager.web.trial import log_page
from nni_manager.web.trial.log_page import LogName, LogTail
from tests.api.world import World

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]

STDOUT = LogName(0, 1, "stdout")


def told(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


async def look(tail: LogTail) -> list[dict[str, Any]]:
    await tail.look()
    return told(tail.take())


@pytest.mark.parametrize(
    "text", ["", "0.1", "0.1.parameter.cfg", "0.1.../stdout", "x.1.stdout", "0.-1.stdout", "²..stdout"]
)
def test_invalid_log_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^log: "):
        LogName.parse(text)


async def test_new_output_is_sent_once(world: World) -> None:
    stdout = (await world.add("seeded")).trials / "good1" / "stdout"
    stdout.write_bytes("aé".encode()[:2])
    tail = LogTail(world.commands, "seeded", STDOUT)
    (first,) = await look(tail)
    assert (first["offset"], first["end"], first["size"], first["text"]) == (0, 2, 2, "a")
    assert await look(tail) == []
    stdout.write_bytes("aéb".encode())
    (second,) = await look(tail)
    assert (second["offset"], second["end"], second["text"]) == (2, 4, "éb")
    stdout.write_bytes(b"new")
    (third,) = await look(tail)
    assert (third["offset"], third["text"]) == (0, "new")


async def test_only_the_end_of_fast_output_is_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_page, "TAIL_BYTES", 4)
    stdout = (await world.add("seeded")).trials / "good1" / "stdout"
    tail = LogTail(world.commands, "seeded", STDOUT)
    (first,) = await look(tail)
    assert (first["offset"], first["text"]) == (6, "6789")
    stdout.write_text("0123456789abcdefgh")
    (second,) = await look(tail)
    assert (second["offset"], second["text"], second["size"]) == (14, "efgh", 18)


async def test_missing_log_is_reported_once(world: World) -> None:
    folder = (await world.add("seeded")).trials / "good1"
    tail = LogTail(world.commands, "seeded", LogName(0, 1, "trial.log"))
    (missing,) = await look(tail)
    assert missing["trouble"] == "trial.log does not exist yet, or was removed" and await look(tail) == []
    (folder / "trial.log").write_text("there")
    assert [one["text"] for one in await look(tail)] == ["there"]
    (unknown,) = await look(LogTail(world.commands, "seeded", LogName(99, 1, "stdout")))
    assert unknown["trouble"] == "cannot find trial number 99"


async def test_remote_log_is_continued_from_its_local_copy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = (await world.add("seeded")).trials / "good1" / "stdout"
    stdout.write_bytes(b"456789")  # the stored end

    class Elsewhere:
        is_here = False
        text = b"0123"
        trouble = False

        async def size(self) -> int:
            return len(self.text)

        async def read(self, offset: int, limit: int) -> bytes:
            if self.trouble:
                raise PlatformUnavailable("no route to host")
            return self.text[offset : offset + limit]

    found = attempt_logs.find
    elsewhere = Elsewhere()

    async def find(*_: Any) -> Any:
        return elsewhere

    monkeypatch.setattr(attempt_logs, "find", find)
    tail = LogTail(world.commands, "seeded", STDOUT)
    assert [one["text"] for one in await look(tail)] == ["0123"]
    elsewhere.text = b"01234567"
    assert [(one["offset"], one["text"]) for one in await look(tail)] == [(4, "4567")]
    elsewhere.trouble = True
    assert [one["trouble"] for one in await look(tail)] == ["no route to host"]
    monkeypatch.setattr(attempt_logs, "find", found)
    assert [(one["offset"], one["text"]) for one in await look(tail)] == [(0, "456789")]


async def test_reader_is_woken_and_nothing_is_read_ahead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_page, "_HERE_S", 0.0)
    stdout = (await world.add("seeded")).trials / "good1" / "stdout"
    tail, news = LogTail(world.commands, "seeded", STDOUT), asyncio.Event()
    following = asyncio.create_task(tail.follow(news))
    for text in ("0123456789", "0123456789more"):
        stdout.write_text(text)
        await news.wait()
        news.clear()
        assert told(tail.take())
    following.cancel()
    await asyncio.wait({following})


async def test_closed_experiment_sends_its_log_before_the_last_state(visitor: httpx.AsyncClient, world: World) -> None:
    """A page closes the stream after a state with a closed experiment."""
    await world.add("seeded")
    text = (await visitor.get("/experiments/seeded/stream?log=0.1.stdout")).text
    assert text.index("event: log") < text.index("event: state") and "0123456789" in text
    refused = await visitor.get("/experiments/seeded/stream?log=0.1.nnimanager.log")
    assert refused.status_code == 400
