"""The ASGI application of the pages and their buttons.

`app` puts the API's guard in front of it, which refuses requests from pages of other sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from nni_manager.domain.errors import NniManagerError, status_of
from nni_manager.web import (
    api_page,
    comparison,
    config_page,
    experiment_forms,
    experiment_pages,
    manager_log,
    new_page,
    platforms_page,
    static_files,
    tensorboard_page,
)
from nni_manager.web.context import PagesContext
from nni_manager.web.listing import listed_experiments
from nni_manager.web.rendering import is_on_endpoint, render
from nni_manager.web.shared_pages import SharedPages
from nni_manager.web.stream import States
from nni_manager.web.table import table_pages
from nni_manager.web.trial import trial_pages

__all__ = ["PagesContext", "create_pages", "is_on_endpoint"]


def create_pages(context: PagesContext) -> Starlette:
    """The application that serves ``/``, ``/compare-experiments``, ``/experiments/…`` and ``/static/…``."""
    routes = [
        *listed_experiments.ROUTES,
        *experiment_forms.ROUTES,
        *new_page.ROUTES,
        *platforms_page.ROUTES,
        *comparison.ROUTES,
        *experiment_pages.ROUTES,
        *table_pages.ROUTES,
        *config_page.ROUTES,
        *manager_log.ROUTES,
        *tensorboard_page.ROUTES,
        *trial_pages.ROUTES,
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


async def _on_domain_error(request: Request, error: Exception) -> Response:
    return render(request, "error.html", status_of(error), sentence=str(error))


async def _on_fault(request: Request, _: Exception) -> Response:
    """The server logs it with its traceback."""
    sentence = "internal error; try again, and see the manager's log for details"
    return render(request, "error.html", HTTPStatus.INTERNAL_SERVER_ERROR, sentence=sentence)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = f"page {request.url.path} does not exist" if error.status_code == HTTPStatus.NOT_FOUND else error.detail
    response = render(request, "error.html", error.status_code, sentence=sentence)
    response.headers.update(error.headers or {})
    return response
