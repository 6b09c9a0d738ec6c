"""Pages of open experiments, each made once for all its readers.

After every change each browser that shows an experiment asks for the same page. It is made once for a change, and again
after a second; its tag (ETag) lets a browser that has it already be answered in a few bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from nni_manager.web.rendering import context_of, experiment_id, is_on_endpoint, reads_only

#: Seconds after which a page is made again: durations and rates go on without a change.
_FRESH_S = 1.0
#: Most pages that are kept.
_MOST = 64

Endpoint = Callable[[Request], Awaitable[Response]]
_Key = tuple[str | bool, ...]


@dataclass(frozen=True, slots=True)
class _Page:
    response: Response
    made_s: float


class SharedPages:
    """The pages that were made last; used from one event loop."""

    def __init__(self) -> None:
        self._pages: OrderedDict[_Key, _Page] = OrderedDict()
        #: Pages that are being made.
        self._making: dict[_Key, asyncio.Task[Response]] = {}

    async def answer(self, request: Request, make: Endpoint) -> Response:
        """The page that `make` makes of address, role and state, and of nothing else."""
        experiment = context_of(request).service.at_work(experiment_id(request))
        if experiment is None:
            return await make(request)
        # read before the page is made: the page is at least that new
        key = (*_address(request), experiment.changes.revision)
        kept = self._pages.get(key)
        if kept is not None and time.monotonic() - kept.made_s < _FRESH_S:
            return _unless_known(request, kept.response)
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.ensure_future(make(request))
            task.add_done_callback(lambda done: self._finish(key, done))
        return _unless_known(request, await asyncio.shield(task))

    def _finish(self, key: _Key, task: asyncio.Task[Response]) -> None:
        del self._making[key]
        if task.cancelled() or task.exception() is not None or task.result().status_code != HTTPStatus.OK:
            return
        _tag(task.result())
        self._pages[key] = _Page(task.result(), time.monotonic())
        self._pages.move_to_end(key)
        while len(self._pages) > _MOST:
            self._pages.popitem(last=False)


def shared(make: Endpoint) -> Endpoint:
    """The endpoint of a page that its readers share."""

    async def answer(request: Request) -> Response:
        pages = request.app.state.shared
        assert isinstance(pages, SharedPages)
        return await pages.answer(request, make)

    return answer


def _address(request: Request) -> _Key:
    scope = request.scope
    path, query = str(scope["path"]), scope["query_string"].decode("latin-1")
    return scope.get("root_path", ""), path, query, reads_only(request), is_on_endpoint(request)


def _tag(response: Response) -> None:
    response.headers["ETag"] = f'"{hashlib.blake2b(bytes(response.body), digest_size=8).hexdigest()}"'


def _unless_known(request: Request, response: Response) -> Response:
    """304 for a reader that has this page; a proxy that compresses makes the tag weak."""
    tag, known = response.headers.get("ETag"), request.headers.get("If-None-Match", "").removeprefix("W/")
    if tag is None or tag != known:
        return response
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
