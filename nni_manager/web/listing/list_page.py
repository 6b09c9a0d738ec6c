"""``/``: the page with all experiments, and its stream of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.scheduler.changes import Changes
from nni_manager.streams.event_stream import EventStream, Part, event
from nni_manager.web.listing import listed_experiments
from nni_manager.web.listing.list_query import ARCHIVED, ListQuery
from nni_manager.web.rendering import context_of, render
from nni_manager.web.shared_pages import of_all, shared

#: What makes a first experiment, for a reader who has none.
COMMANDS = (
    ("nnictl config check my.yml", "says what is wrong in an experiment file, with line and field"),
    ("nnictl create --config my.yml", "makes the experiment and starts it; it shows up here"),
    ("nnictl experiment list", "lists what there is, in a terminal"),
)


async def _list(request: Request) -> Response:
    query = ListQuery.parse(request.query_params.multi_items())
    page = await listed_experiments.read(context_of(request), query)
    return render(request, "experiments.html", listed=page, query=query, commands=COMMANDS, archived=ARCHIVED)


async def _stream(request: Request) -> Response:
    """The news that something has changed; the page fetches what it shows. Ends when the daemon ends."""
    context = context_of(request)
    return EventStream(_News(context.service.changes), context.stopping)


class _News:
    """The changes of all experiments as the subject of a stream."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    @contextmanager
    def watch(self) -> Iterator[asyncio.Event]:
        with self._changes.watch() as news:
            yield news

    async def read(self) -> Part:
        return Part(text=event("state", json.dumps({"revision": self._changes.count})), is_last=False)


ROUTES = [Route("/", shared(_list, of_all), name="list"), Route("/stream", _stream)]
