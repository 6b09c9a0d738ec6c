"""A stream of events, read as it arrives."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class Stream:
    """A request with its answer read in pieces; a client of httpx would wait for the whole answer."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self._parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.gone = asyncio.Event()
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self._parts.put_nowait(message)

    async def part(self) -> str:
        """The next piece of the body; empty at its end."""
        return str((await self._parts.get())["body"].decode())

    async def events(self) -> list[tuple[str, dict[str, Any]]]:
        """The events of one piece, (kind, data) each. Comments are keep-alives."""
        blocks = [block.split("\n") for block in (await self.part()).split("\n\n") if block and block[0] != ":"]
        return [(lines[0][7:], json.loads(lines[1][6:])) for lines in blocks]

    async def until(self, kind: str, **fields: object) -> dict[str, Any]:
        """The first event that satisfies the condition."""
        while True:
            for found, data in await self.events():
                if found == kind and fields.items() <= data.items():
                    return data

    async def state(self) -> dict[str, Any]:
        kind, data, *rest = (await self.part()).split("\n")
        assert kind == "event: state" and rest == ["", ""]
        state: dict[str, Any] = json.loads(data.removeprefix("data: "))
        return state
