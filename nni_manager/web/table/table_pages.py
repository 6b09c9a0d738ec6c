"""The table of trials, the actions on ticked rows, and the table as a download.

The download is JSON, or CSV with a column for each parameter and result key.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from nni_manager.analysis.query import MOST_ROWS, Query
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.formats import spreadsheet_text
from nni_manager.store.experiment import answers, trial_reads
from nni_manager.web import formats
from nni_manager.web.experiment_pages import render_tab
from nni_manager.web.rendering import ask, back, context_of, experiment_id, form_of
from nni_manager.web.shared_pages import shared
from nni_manager.web.table import page_query, trial_table
from nni_manager.web.table.page_query import PageQuery, canonical

#: Options for the number of rows on a page.
_SIZES = (20, 50, 100, 200)
#: Maximum number of trials compared side by side.
_MOST_COMPARED = 20


@shared
async def _trials(request: Request) -> Response:
    given = request.query_params.multi_items()
    if canonical(given) != given:
        return _to_canonical(request, "trials", given)
    query = PageQuery.parse(given)
    columns, found = await asyncio.gather(ask(request, "columns", query.query), ask(request, "trials", query.query))
    table = trial_table.build(query, columns, found)
    return await render_tab(
        request,
        "trials.html",
        tab="trials",
        table=table,
        query=query,
        statuses=page_query.statuses(query, columns["statuses"]),
        fields=page_query.fields(query, columns),
        keys=[key["name"] for key in columns["keys"]],
        sizes=_SIZES,
    )


async def _compare(request: Request) -> Response:
    """The trials in ``selected`` side by side."""
    given = request.query_params.multi_items()
    if canonical(given) != given:
        return _to_canonical(request, "compare", given)
    selected = PageQuery.parse(given).query.selected[:_MOST_COMPARED]
    everything = request.query_params.get("all") == "1"
    context, id_ = context_of(request), experiment_id(request)
    found = await context.commands.read(id_, lambda c: trial_reads.of_numbers(c, selected))
    table = trial_table.compare(found, context.clock(), everything=everything)
    selection = ",".join(map(str, selected))
    return await render_tab(request, "compare.html", tab="trials", table=table, selection=selection)


async def _kill(request: Request) -> Response:
    """Kill the ticked trials; ended ones are unchanged."""
    context, id_, form = context_of(request), experiment_id(request), await form_of(request)
    query = PageQuery.parse([("selected", text) for text in form.get("tick", [])])
    if not query.query.selected:
        raise InvalidInput("no trials are ticked; tick the trials to kill, then press again")
    found = await context.commands.read(id_, lambda c: trial_reads.of_numbers(c, query.query.selected))
    for trial in found:
        await context.commands.kill_trial(id_, trial["id"])
    return await back(request)


async def _file(request: Request) -> Response:
    """All trials that match the query: ``trials.csv``, ``trials.json``."""
    form = request.url.path.rpartition(".")[2]
    query = PageQuery.parse(request.query_params.multi_items()).query

    async def curves(ids: list[str]) -> Mapping[str, list[Any]]:
        return await context_of(request).commands.read(experiment_id(request), lambda c: answers.curves(c, ids))

    with_curves = request.query_params.get("curves") == "1"
    return await _exported(form, experiment_id(request), query, partial(ask, request), curves if with_curves else None)


def _to_canonical(request: Request, page: str, given: list[tuple[str, str]]) -> Response:
    """Redirect a form's query string to its canonical form, which charts read too.

    A form sends empty fields, ranges in two parts, and a value for each ticked row.
    """
    query = str(QueryParams(canonical(given)))
    path = f"{request.scope.get('root_path', '')}/experiments/{experiment_id(request)}/{page}"
    return RedirectResponse(f"{path}?{query}" if query else path, 302)


#: Trial ids → intermediate results of the latest attempt, by id.
Curves = Callable[[list[str]], Awaitable[Mapping[str, list[Any]]]]
Ask = Callable[[str, Query], Awaitable[dict[str, Any]]]

_KINDS = {"csv": "text/csv", "json": "application/json"}
_FACTS = ("number", "id", "status", "reason", "latest", "startedMs", "endedMs", "durationMs", "attempt", "place")


async def _exported(form: str, id: str, query: Query, ask: Ask, curves: Curves | None = None) -> Response:
    """Download of all trials that match the query.

    `form`: csv, json. `curves`: reads intermediate results, only for JSON; None: without them.
    """
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
            yield _line([spreadsheet_text(formats.whole(value)) for value in values])


def _line(cells: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode(errors="backslashreplace")


_HERE = "/experiments/{id}"
ROUTES = [
    Route(f"{_HERE}/trials", _trials),
    Route(f"{_HERE}/trials.csv", _file),
    Route(f"{_HERE}/trials.json", _file),
    Route(f"{_HERE}/compare", _compare),
    Route(f"{_HERE}/kill", _kill, methods=["POST"]),
]
