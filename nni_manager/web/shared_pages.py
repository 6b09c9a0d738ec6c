"""Pages that are rendered once and shared by all their readers.

After every change, each browser that shows an experiment requests the same page. The page is rendered once per change,
and again after a second. Its ETag keeps the answer to a browser that already has it at a few bytes. Renderings of a
page never overlap: requests that arrive during one share the next.
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

#: Seconds after which a page is rendered again, because durations and rates change without an event.
_FRESH_S = 1.0
#: Maximum number of pages kept.
_MOST = 64

Endpoint = Callable[[Request], Awaitable[Response]]
#: Returns a text that changes with the page's content; None: render the page for each reader.
State = Callable[[Request], str | None]
_Key = tuple[str | bool, ...]


@dataclass(frozen=True, slots=True)
class _Page:
    response: Response
    state: str
    made_s: float


@dataclass(slots=True)
class _Making:
    """A page that is being rendered, or waits for the previous rendering."""

    #: State that the page shows; None: rendering has not started.
    state: str | None
    task: asyncio.Task[Response] | None = None


class SharedPages:
    """Cache of rendered pages; used from one event loop."""

    def __init__(self) -> None:
        self._pages: OrderedDict[_Key, _Page] = OrderedDict()
        #: At most two per address: the current rendering and the next.
        self._making: dict[_Key, list[_Making]] = {}

    async def answer(self, request: Request, make: Endpoint, state: State) -> Response:
        """The page that `make` renders; it may depend only on address, role and `state`."""
        now, address = state(request), _address(request)
        if now is None:
            return await make(request)
        kept = self._pages.get(address)
        if kept is not None and kept.state == now and time.monotonic() - kept.made_s < _FRESH_S:
            return _unless_known(request, kept.response)
        line = self._making.setdefault(address, [])
        if not line or line[-1].state not in (now, None):
            self._begin(address, line, request, make, state)
        task = line[-1].task
        assert task is not None
        return _unless_known(request, await asyncio.shield(task))

    def _begin(self, address: _Key, line: list[_Making], request: Request, make: Endpoint, state: State) -> None:
        before = line[-1].task if line else None
        making = _Making(state(request) if before is None else None)
        making.task = asyncio.ensure_future(_made(making, before, request, make, state))
        making.task.add_done_callback(lambda done: self._finish(address, making, done))
        line.append(making)

    def _finish(self, address: _Key, making: _Making, task: asyncio.Task[Response]) -> None:
        line = self._making[address]
        line.remove(making)
        if not line:
            del self._making[address]
        if task.cancelled() or task.exception() is not None or task.result().status_code != HTTPStatus.OK:
            return
        page = task.result()
        page.headers["ETag"] = f'"{hashlib.blake2b(bytes(page.body), digest_size=8).hexdigest()}"'
        self._pages[address] = _Page(page, making.state or "", time.monotonic())
        self._pages.move_to_end(address)
        while len(self._pages) > _MOST:
            self._pages.popitem(last=False)


async def _made(
    making: _Making, before: asyncio.Task[Response] | None, request: Request, make: Endpoint, state: State
) -> Response:
    if before is not None:
        await asyncio.wait({before})
        making.state = state(request) or ""  # read before rendering, so the page is at least as new
    return await make(request)


def of_experiment(request: Request) -> str | None:
    """The state of the experiment in the path, while it is open."""
    experiment = context_of(request).commands.at_work(experiment_id(request))
    return None if experiment is None else experiment.changes.revision


def of_all(request: Request) -> str | None:
    """The state of the list and of all open experiments."""
    return context_of(request).commands.changes.revision


def shared(make: Endpoint, state: State = of_experiment) -> Endpoint:
    """Make an endpoint whose page all readers share."""

    async def answer(request: Request) -> Response:
        pages = request.app.state.shared
        assert isinstance(pages, SharedPages)
        return await pages.answer(request, make, state)

    return answer


def _address(request: Request) -> _Key:
    scope = request.scope
    path, query = str(scope["path"]), scope["query_string"].decode("latin-1")
    return scope.get("root_path", ""), path, query, reads_only(request), is_on_endpoint(request)


def _unless_known(request: Request, response: Response) -> Response:
    """304 for a reader that has this page. The tag may be weak: a compressing proxy makes it so."""
    tag, known = response.headers.get("ETag"), request.headers.get("If-None-Match", "").removeprefix("W/")
    if tag is None or tag != known:
        return response
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
