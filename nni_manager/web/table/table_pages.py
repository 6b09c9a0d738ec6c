"""The table of trials, what is done with the rows that are ticked, and the table as a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from nni_manager.analysis.query import Query
from nni_manager.domain.errors import InvalidInput
from nni_manager.store.experiment import answers, trial_reads
from nni_manager.web.experiment_pages import render_tab
from nni_manager.web.rendering import back, context_of, experiment_id, form_of
from nni_manager.web.shared_pages import shared
from nni_manager.web.table import compared, exported, filters, trial_table
from nni_manager.web.table.page_query import PageQuery, canonical

#: Rows of a page that the reader chooses from.
_SIZES = (20, 50, 100, 200)
#: Most trials that are compared side by side.
_MOST_COMPARED = 20


@shared
async def _trials(request: Request) -> Response:
    given = request.query_params.multi_items()
    if canonical(given) != given:
        return _to_canonical(request, given)
    query = PageQuery.parse(given)
    columns, found = await asyncio.gather(_ask(request, "columns", query.query), _ask(request, "trials", query.query))
    table = trial_table.build(query, columns, found)
    return await render_tab(
        request,
        "trials.html",
        tab="trials",
        table=table,
        query=query,
        statuses=filters.statuses(query, columns["statuses"]),
        fields=filters.fields(query, columns),
        keys=[key["name"] for key in columns["keys"]],
        sizes=_SIZES,
    )


async def _compare(request: Request) -> Response:
    """The trials of ``selected`` side by side."""
    given = request.query_params.multi_items()
    selected = PageQuery.parse(given).query.selected[:_MOST_COMPARED]
    everything = request.query_params.get("all") == "1"
    context, id_ = context_of(request), experiment_id(request)
    found = await context.service.read(id_, lambda c: trial_reads.of_numbers(c, selected))
    table = compared.build(found, context.clock(), everything=everything)
    selection = ",".join(map(str, selected))
    return await render_tab(request, "compare.html", tab="trials", table=table, selection=selection)


async def _kill(request: Request) -> Response:
    """Ends the ticked trials; those that have ended are left as they are."""
    context, id_, form = context_of(request), experiment_id(request), await form_of(request)
    query = PageQuery.parse([("selected", text) for text in form.get("tick", [])])
    if not query.query.selected:
        raise InvalidInput("no trial is ticked; tick those that are to be killed, then press again")
    found = await context.service.read(id_, lambda c: trial_reads.of_numbers(c, query.query.selected))
    for trial in found:
        await context.service.kill_trial(id_, trial["id"])
    return await back(request)


async def _file(request: Request) -> Response:
    """The trials that the query chooses, all pages of them: ``trials.csv``, ``trials.json``."""
    form = request.url.path.rpartition(".")[2]
    query = PageQuery.parse(request.query_params.multi_items()).query

    async def ask(question: str, one: Query) -> dict[str, Any]:
        return await _ask(request, question, one)

    async def curves(ids: list[str]) -> Mapping[str, list[Any]]:
        return await context_of(request).service.read(experiment_id(request), lambda c: answers.curves(c, ids))

    with_curves = request.query_params.get("curves") == "1"
    return await exported.answer(form, experiment_id(request), query, ask, curves if with_curves else None)


async def _ask(request: Request, question: str, query: Query) -> dict[str, Any]:
    answer = await context_of(request).analysis.ask(experiment_id(request), question, query)
    found: dict[str, Any] = json.loads(answer.text)
    return found


def _to_canonical(request: Request, given: list[tuple[str, str]]) -> Response:
    """A form sends empty fields and ranges in two parts; the address has neither."""
    query = str(QueryParams(canonical(given)))
    path = f"{request.scope.get('root_path', '')}/experiments/{experiment_id(request)}/trials"
    return RedirectResponse(f"{path}?{query}" if query else path, 302)


_HERE = "/experiments/{id}"
ROUTES = [
    Route(f"{_HERE}/trials", _trials),
    Route(f"{_HERE}/trials.csv", _file),
    Route(f"{_HERE}/trials.json", _file),
    Route(f"{_HERE}/compare", _compare),
    Route(f"{_HERE}/kill", _kill, methods=["POST"]),
]
