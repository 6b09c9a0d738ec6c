"""The pages of one experiment: overview, trials, config, log; and their stream of events.

Each page is a template that extends ``experiment.html``, which has the head and the tabs.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.streams.event_stream import EventStream
from nni_manager.web import shown_experiments
from nni_manager.web.log_tail import LogName, LogTail
from nni_manager.web.rendering import context_of, experiment_id, render
from nni_manager.web.stream import PageEvents
from nni_manager.web.trial_table import TableQuery


async def _overview(request: Request) -> Response:
    return await render_tab(request, "overview.html", tab="")


async def _trials(request: Request) -> Response:
    query = TableQuery.parse(request.query_params)
    found = await shown_experiments.table(context_of(request), experiment_id(request), query)
    return await render_tab(request, "trials.html", tab="trials", table=found, query=query)


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
    return render(request, template, status, shown=shown, tab=tab, **values)


_HERE = "/experiments/{id}"
ROUTES = [
    Route(_HERE, _overview),
    Route(f"{_HERE}/trials", _trials),
    Route(f"{_HERE}/stream", _stream),
]
