"""Pages that are made once and shared by all connections that show them.

After every change each browser that shows an experiment asks for the same page. It is made once for a change, and again
after a second; its tag (ETag) lets a browser that has it already be answered in a few bytes. However often something
changes, a page is made for one state after the other, and those who ask meanwhile share the next one.
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
#: A text that changes with what the page shows; None: it is made for each reader.
State = Callable[[Request], str | None]
_Key = tuple[str | bool, ...]


@dataclass(frozen=True, slots=True)
class _Page:
    response: Response
    state: str
    made_s: float


@dataclass(slots=True)
class _Making:
    """A page that is being made, or waits until the one before it is made."""

    #: None: it has not begun, and will be of the state there is then.
    state: str | None
    task: asyncio.Task[Response] | None = None


class SharedPages:
    """The pages that were made last; used from one event loop."""

    def __init__(self) -> None:
        self._pages: OrderedDict[_Key, _Page] = OrderedDict()
        #: Of each address at most two: one at work, and the next.
        self._making: dict[_Key, list[_Making]] = {}

    async def answer(self, request: Request, make: Endpoint, state: State) -> Response:
        """The page that `make` makes of address, role and `state`, and of nothing else."""
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
        making.state = state(request) or ""  # before the page is made: it is at least that new
    return await make(request)


def of_experiment(request: Request) -> str | None:
    """The state of the experiment in the path, while it is open."""
    experiment = context_of(request).commands.at_work(experiment_id(request))
    return None if experiment is None else experiment.changes.revision


def of_all(request: Request) -> str | None:
    """The state of the list and of all open experiments."""
    return context_of(request).commands.changes.revision


def shared(make: Endpoint, state: State = of_experiment) -> Endpoint:
    """The endpoint of a page that its readers share."""

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
    """304 for a reader that has this page; a proxy that compresses makes the tag weak."""
    tag, known = response.headers.get("ETag"), request.headers.get("If-None-Match", "").removeprefix("W/")
    if tag is None or tag != known:
        return response
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
