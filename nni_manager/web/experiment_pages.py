"""The overview of one experiment, its stream of events, and what every page of it shows.

Each page is a template that extends ``experiment.html``, which has the head and the tabs.
"""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.streams.event_stream import EventStream
from nni_manager.web import shown_experiments
from nni_manager.web.experiment import notices
from nni_manager.web.rendering import context_of, experiment_id, render
from nni_manager.web.shared_pages import shared
from nni_manager.web.stream import PageEvents
from nni_manager.web.table.page_query import PageQuery
from nni_manager.web.trial import parameter_texts
from nni_manager.web.trial.log_tail import LogName, LogTail


@shared
async def _overview(request: Request) -> Response:
    query = PageQuery.parse(request.query_params.multi_items())
    context_of(request).analysis.prepare(experiment_id(request))  # while the browser loads what draws the charts
    return await render_tab(request, "overview.html", tab="", query=query)


async def _stream(request: Request) -> Response:
    """The one stream of a page; ``?log=17.1.stdout``: with that log of that attempt of that trial. Refused with an
    error page before it begins."""
    context, id_ = context_of(request), experiment_id(request)
    await context.service.entry(id_)
    asked = request.query_params.get("log", "")
    log = LogTail(context.service, id_, LogName.parse(asked)) if asked else None
    return EventStream(PageEvents(request.app.state.states, id_, log), context.stopping)


async def render_tab(request: Request, template: str, *, tab: str, status: int = 200, **values: object) -> Response:
    """A page of one experiment below its head. `tab`: the last part of its path, which the tabs mark; "": overview.

    Raises NotFound or StoreError.
    """
    shown = await shown_experiments.shown(context_of(request), experiment_id(request))
    told = notices.of(shown.overview, shown.status, shown.progress, shown.no_more_trials)
    best = shown.overview.best
    copies = {
        "best_json": json.dumps(best.parameters, ensure_ascii=False) if best else "",
        "best_code": parameter_texts.as_code(best.parameters) if best else "",
    }
    query = values.get("query")
    # what charts are brushed to is what the table shows, and the other way round
    tab_query = query.string(page=None, trial=None) if isinstance(query, PageQuery) else ""
    return render(
        request, template, status, shown=shown, tab=tab, notices=told, tab_query=tab_query, **copies, **values
    )


_HERE = "/experiments/{id}"
ROUTES = [Route(_HERE, _overview), Route(f"{_HERE}/stream", _stream)]
