"""The conversation with a machine before its keeper takes over: nothing that it sends costs memory, or a traceback."""

from __future__ import annotations

import asyncio
import json
import re
import tracemalloc
from typing import Any
from unittest.mock import Mock

import pytest

from nni_manager.machines.ssh import bootstrap, transport
from nni_manager.machines.ssh.transport import Channel

pytestmark = pytest.mark.unit

GREETING: dict[str, Any] = {
    "system": "Linux",
    "python": [3, 11, 2],
    "host": "gpubox",
    "folder": "/home/a/.nni-manager/x",
    "home": "/home/a",
    "program": "/home/a/p",
    "interpreter": "/usr/bin/python3",
    "environment": {"PATH": "/bin"},
    "now_ms": 1,
    "disk_free_bytes": 1,
    "free_inodes": None,
    "processors": 2,
    "may_write": True,
    "keeper": "",
    "held": "",
    "has": True,
}


@pytest.fixture
async def channel() -> Channel:
    channel = Channel()
    channel.connection_made(Mock())
    return channel


async def _send(channel: Channel, piece: bytes, times: int) -> None:
    for _ in range(times):
        channel.data_received(piece, None)
        await asyncio.sleep(0)


async def test_endless_start_of_a_login_shell_takes_no_memory(channel: Channel) -> None:
    found = asyncio.create_task(channel.until(re.compile(rb"mark\n")))
    tracemalloc.start()
    await _send(channel, b"x" * 65536, 300)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    with pytest.raises(EOFError, match="more than 16 MiB"):
        await found
    assert most < 6 * 2**20
    channel.channel.abort.assert_called_once()  # type: ignore[attr-defined]


async def test_endless_line_is_given_up(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_MOST_IN_LINE", 2**20)
    line = asyncio.create_task(channel.line())
    await _send(channel, b"x" * 65536, 20)
    with pytest.raises(EOFError, match="more than 1 MiB"):
        await line


async def test_mark_that_comes_in_pieces_is_found(channel: Channel) -> None:
    found = asyncio.create_task(channel.until(re.compile(rb"mark\n")))
    await _send(channel, b"x" * 1000 + b"ma", 1)
    await _send(channel, b"rk\nrest", 1)
    assert (await found)[0] == b"mark\n"


def test_right_greeting() -> None:
    greeting = bootstrap._greeting(dict(GREETING))
    assert (greeting.python, greeting.host, greeting.processors) == ("3.11.2", "gpubox", 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("python", 3),
        ("python", None),
        ("host", 5),
        ("environment", []),
        ("environment", {"A": 1}),
        ("now_ms", "1"),
        ("processors", None),
        ("may_write", "yes"),
        ("keeper", {}),
        ("folder", None),
    ],
)
def test_invalid_greeting_field_is_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"its greeting has an invalid {field}"):
        bootstrap._greeting({**GREETING, field: value})


@pytest.mark.parametrize("word", ["[]", "5", '"x"', "null"])
async def test_non_object_answer_is_refused(channel: Channel, word: str) -> None:
    channel.data_received(f"{json.dumps(json.loads(word))}\n".encode(), None)
    with pytest.raises(ValueError, match="an invalid answer"):
        await bootstrap._reply(channel)
