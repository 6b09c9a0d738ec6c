"""The pages and their buttons, an ASGI application. `app` puts the API's guard in front of it, which refuses requests
of other sites' pages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nni_manager.domain.errors import InvalidInput, NniManagerError, status_of
from nni_manager.web import api_page, buttons, experiment_pages, shown_experiments, static_files
from nni_manager.web.comparison import comparison_page
from nni_manager.web.experiment import config_page, manager_log
from nni_manager.web.rendering import PagesContext, context_of, is_on_endpoint, render
from nni_manager.web.shared_pages import SharedPages
from nni_manager.web.stream import States
from nni_manager.web.table import table_pages
from nni_manager.web.trial import failure_pages, trial_pages

#: Experiments on a page of their list.
_PAGE_SIZE = 50

__all__ = ["PagesContext", "create_pages", "is_on_endpoint"]


def create_pages(context: PagesContext) -> Starlette:
    """The application that serves ``/``, ``/compare-experiments``, ``/experiments/…`` and ``/static/…``."""
    routes = [
        Route("/", _list, name="list"),
        *comparison_page.ROUTES,
        *experiment_pages.ROUTES,
        *table_pages.ROUTES,
        *config_page.ROUTES,
        *manager_log.ROUTES,
        *trial_pages.ROUTES,
        *failure_pages.ROUTES,
        *buttons.ROUTES,
        *api_page.ROUTES,
        *static_files.ROUTES,
    ]
    handlers: Mapping[type[Exception], object] = {
        NniManagerError: _on_domain_error,
        HTTPException: _on_http_error,
        Exception: _on_fault,
    }
    pages = Starlette(routes=routes, exception_handlers=handlers)  # type: ignore[arg-type]  # handlers of subclasses
    pages.state.context = context
    pages.state.states = States(context)
    pages.state.shared = SharedPages()
    return pages


async def _list(request: Request) -> Response:
    """The page with all experiments, newest first."""
    context, page = context_of(request), _page_number(request)
    entries = (await context.service.entries())[::-1]
    chosen = entries[(page - 1) * _PAGE_SIZE : page * _PAGE_SIZE]
    now = context.clock()
    rows = await asyncio.gather(*(shown_experiments.listed(context.service, entry, now) for entry in chosen))
    pages = max(1, -(-len(entries) // _PAGE_SIZE))
    return render(request, "experiments.html", rows=rows, total=len(entries), page=page, pages=pages)


def _page_number(request: Request) -> int:
    """The number of the page, from 1. Raises InvalidInput."""
    text = request.query_params.get("page", "1")
    if not (text.isascii() and text.isdecimal() and 1 <= len(text) <= 9 and int(text)):
        raise InvalidInput("page: must be a number from 1")
    return int(text)


async def _on_domain_error(request: Request, error: Exception) -> Response:
    return render(request, "error.html", status_of(error), sentence=str(error))


async def _on_fault(request: Request, _: Exception) -> Response:
    """The server logs it with its traceback."""
    sentence = "this is a fault in the manager; its log has the details, and trying again may help"
    return render(request, "error.html", HTTPStatus.INTERNAL_SERVER_ERROR, sentence=sentence)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = f"there is no page {request.url.path}" if error.status_code == HTTPStatus.NOT_FOUND else error.detail
    response = render(request, "error.html", error.status_code, sentence=sentence)
    response.headers.update(error.headers or {})
    return response
