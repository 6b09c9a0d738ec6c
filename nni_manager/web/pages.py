"""The pages and their buttons, an ASGI application. `app` puts the API's guard in front of it, which refuses requests
of other sites' pages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from nni_manager.analysis.service import Analysis
from nni_manager.domain.clock import Clock, now_ms
from nni_manager.domain.errors import NniManagerError, NotFound, status_of
from nni_manager.domain.ids import EXPERIMENT_ID, TRIAL_ID
from nni_manager.scheduler.experiments.commands import ExperimentCommands
from nni_manager.web import formats, shown_experiments
from nni_manager.web.trial_table import PAGE_SIZE, TableQuery, page_number

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesContext:
    """The parts of the daemon that the pages use."""

    service: ExperimentCommands
    version: str
    #: Answers questions about trials, in a process of its own.
    analysis: Analysis
    clock: Clock = now_ms


def create_pages(context: PagesContext) -> Starlette:
    """The application that serves ``/``, ``/experiments/…`` and ``/static/…``."""
    experiment = "/experiments/{id}"
    routes = [
        Route("/", _list, name="list"),
        Route(experiment, _show),
        Route(f"{experiment}/fragment", _fragment),
        Route(f"{experiment}/stop", _stop, methods=["POST"]),
        Route(f"{experiment}/resume", _resume, methods=["POST"]),
        Route(f"{experiment}/trials/{{trial_id}}/kill", _kill, methods=["POST"]),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    handlers: Mapping[type[Exception], object] = {
        NniManagerError: _on_domain_error,
        HTTPException: _on_http_error,
        Exception: _on_fault,
    }
    pages = Starlette(routes=routes, exception_handlers=handlers)  # type: ignore[arg-type]  # handlers of subclasses
    pages.state.context = context
    return pages


# Pages


async def _list(request: Request) -> Response:
    """The page with all experiments, newest first."""
    context, page = _context(request), page_number(request.query_params)
    entries = (await context.service.entries())[::-1]
    chosen = entries[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    now = context.clock()
    rows = await asyncio.gather(*(shown_experiments.listed(context.service, entry, now) for entry in chosen))
    pages = max(1, -(-len(entries) // PAGE_SIZE))
    return render(request, "experiments.html", rows=rows, total=len(entries), page=page, pages=pages)


async def _show(request: Request) -> Response:
    return await _render_experiment(request, "experiment.html")


async def _fragment(request: Request) -> Response:
    """The changing part of the page, for the script."""
    return await _render_experiment(request, "experiment_body.html")


async def _render_experiment(request: Request, template: str) -> Response:
    context, query = _context(request), TableQuery.parse(request.query_params)
    found = await shown_experiments.shown(context.service, _experiment_id(request), query, context.clock())
    limits = shown_experiments.limits(found.overview)
    return render(request, template, shown=found, table=found.table, query=query, limits=limits)


# Buttons


async def _stop(request: Request) -> Response:
    """Answers when its trials have ended. An endpoint closes with its experiment, so there is no page to return to."""
    await _context(request).service.stop(_experiment_id(request))
    return render(request, "closed.html", id=_experiment_id(request)) if is_on_endpoint(request) else _back(request)


async def _resume(request: Request) -> Response:
    await _context(request).service.resume(_experiment_id(request))
    return _back(request)


async def _kill(request: Request) -> Response:
    id_, trial_id = _experiment_id(request), request.path_params["trial_id"]
    if TRIAL_ID.fullmatch(trial_id) is None:
        raise NotFound(f"{trial_id!r} is no trial id; the experiment's page lists its trials")
    await _context(request).service.kill_trial(id_, trial_id)
    return _back(request)


def _back(request: Request) -> Response:
    """A redirect to the page of the button, with its sorting and page number."""
    query = TableQuery.parse(request.query_params).string()
    base = request.scope.get("root_path", "")
    return RedirectResponse(f"{base}/experiments/{_experiment_id(request)}?{query}", HTTPStatus.SEE_OTHER)


# Helpers


def _context(request: Request) -> PagesContext:
    context = request.app.state.context
    assert isinstance(context, PagesContext)
    return context


def _experiment_id(request: Request) -> str:
    """The experiment's id in the path. Raises NotFound for a malformed id."""
    id_ = str(request.path_params["id"])
    if EXPERIMENT_ID.fullmatch(id_) is None:
        raise NotFound(f"{id_!r} is no experiment id; the first page lists all")
    return id_


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


HERE = Path(__file__).parent

#: Nothing from other hosts, nothing inline, no frames.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def render(request: Request, template: str, status: int = 200, **values: object) -> HTMLResponse:
    """`base` in templates is the prefix of every path."""
    values |= {
        "base": request.scope.get("root_path", ""),
        "version": request.app.state.context.version,
        "on_endpoint": is_on_endpoint(request),
    }
    text = _environment().get_template(template).render(values)
    # parameters may hold lone surrogates, which UTF-8 cannot encode
    return HTMLResponse(text.encode(errors="backslashreplace"), status, _HEADERS)


def is_on_endpoint(request: Request) -> bool:
    """Whether the request came through an experiment's endpoint (`app.listening.endpoint_application`)."""
    return "nni_experiment" in request.scope.get("state", {})


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "moment": formats.moment,
        "duration": formats.duration,
        "number": formats.number,
        "limit": formats.limit,
        "parameters": formats.parameters,
    }
    return environment
