"""Server-sent events → JSON objects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any


def read_events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The data of each event. Comments, which keep the connection alive, and an unfinished last event are left out."""
    data: list[str] = []
    for line in lines:
        text = line.decode().rstrip("\r\n")
        if text.startswith("data:"):
            data.append(text[5:].removeprefix(" "))
        elif not text and data:
            yield json.loads("\n".join(data))
            data = []
