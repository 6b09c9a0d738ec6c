"""The table of trials as a file: CSV with a column for each parameter and key of results, or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.responses import Response, StreamingResponse

from nni_manager.analysis.query import MOST_ROWS, Query
from nni_manager.web import formats

#: Ids of trials → by id, the intermediate results of the latest attempt.
Curves = Callable[[list[str]], Awaitable[Mapping[str, list[Any]]]]
Ask = Callable[[str, Query], Awaitable[dict[str, Any]]]

_KINDS = {"csv": "text/csv", "json": "application/json"}
_FACTS = ("number", "id", "status", "reason", "latest", "startedMs", "endedMs", "durationMs", "attempt", "place")


async def answer(form: str, id: str, query: Query, ask: Ask, curves: Curves | None = None) -> Response:
    """A download of all trials that the query chooses. `form`: csv, json. `curves`: reads intermediate results, for
    JSON alone; None: without them."""
    columns = await ask("columns", query)
    write = _csv if form == "csv" else partial(_json, curves=curves)
    headers = {"Content-Disposition": f'attachment; filename="{id}-trials.{form}"', "Cache-Control": "no-store"}
    return StreamingResponse(
        write(_pages(query, ask), columns), media_type=f"{_KINDS[form]}; charset=utf-8", headers=headers
    )


async def _pages(query: Query, ask: Ask) -> AsyncIterator[list[dict[str, Any]]]:
    page, pages = 1, 1
    while page <= pages:
        found = await ask("trials", replace(query, page=page, limit=MOST_ROWS))
        pages, page = found["pages"], page + 1
        yield found["rows"]


async def _json(
    pages: AsyncIterator[list[dict[str, Any]]], _: dict[str, Any], *, curves: Curves | None
) -> AsyncIterator[bytes]:
    begin = "["
    async for rows in pages:
        found = await curves([row["id"] for row in rows]) if curves is not None else {}
        for row in rows:
            kept = {name: value for name, value in row.items() if name not in ("spark", "position")}
            if curves is not None:
                kept["curve"] = found.get(row["id"], [])
            yield (begin + json.dumps(kept)).encode()
            begin = ",\n"
    yield b"]\n" if begin != "[" else b"[]\n"


async def _csv(pages: AsyncIterator[list[dict[str, Any]]], columns: dict[str, Any]) -> AsyncIterator[bytes]:
    parameters = [one["name"] for one in columns["parameters"]]
    keys = [one["name"] for one in columns["keys"]]
    yield _line([*_FACTS, *(f"p.{name}" for name in parameters), *(f"m.{name}" for name in keys)])
    async for rows in pages:
        for row in rows:
            values = [row[name] for name in _FACTS]
            values += [row["parameters"].get(name) for name in parameters] + [row["metrics"].get(key) for key in keys]
            yield _line([_harmless(formats.whole(value)) for value in values])


def _line(cells: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode(errors="backslashreplace")


def _harmless(text: str) -> str:
    """A text that a spreadsheet does not take for a formula."""
    if not text or text[0] not in "=+-@\t\r":
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
