"""Helpers for requests and responses of pages: templates, headers, redirects."""

from __future__ import annotations

import json
import re
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from nni_manager.analysis.query import Query
from nni_manager.domain.errors import InvalidInput, NotFound
from nni_manager.domain.formats import duration, number
from nni_manager.domain.ids import EXPERIMENT_ID
from nni_manager.domain.text import web_link
from nni_manager.machines.gpu_sample import in_words
from nni_manager.web import formats, static_files
from nni_manager.web.context import PagesContext
from nni_manager.web.trial.shown_trial import how_it_ended

if TYPE_CHECKING:
    from jinja2 import Environment


HERE = Path(__file__).parent

#: Nothing from other hosts, no inline scripts, no frames. Charts need inline styles and image URLs.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
#: Path and query of a page below its experiment: ``trials?status=FAILED``.
_QUERY = re.compile(r"[^\s\\#]*")
_REST = re.compile(r"(?:[a-z0-9]+(?:/[A-Za-z0-9]+)*)?(?:\?[^\s\\]*)?")


def context_of(request: Request) -> PagesContext:
    context = request.app.state.context
    assert isinstance(context, PagesContext)
    return context


def experiment_id(request: Request) -> str:
    """The experiment's id in the path. Raises NotFound for a malformed id."""
    id_ = str(request.path_params["id"])
    if EXPERIMENT_ID.fullmatch(id_) is None:
        raise NotFound(f"{id_!r} is not an experiment id; the start page lists all experiments")
    return id_


def is_on_endpoint(request: Request) -> bool:
    """Whether the request came through an experiment's endpoint (`app.listening.endpoints`)."""
    return "nni_experiment" in request.scope.get("state", {})


def reads_only(request: Request) -> bool:
    """Whether the request came with a token for reading (`api.access.guard`)."""
    return "nni_reads_only" in request.scope.get("state", {})


def render(request: Request, template: str, status: int = 200, **values: object) -> HTMLResponse:
    """Render a template.

    Templates also get `base`, the prefix of every path; `back`, the page to which buttons return; and `may_change`,
    whether buttons are shown.
    """
    values = {
        "base": request.scope.get("root_path", ""),
        "version": context_of(request).version,
        "on_endpoint": is_on_endpoint(request),
        "back": _rest(request),
        "may_change": not reads_only(request),
        "may_create": context_of(request).read_experiment is not None and not is_on_endpoint(request),
        **values,
    }
    text = environment().get_template(template).render(values)
    # parameters may hold lone surrogates, which UTF-8 cannot encode
    return HTMLResponse(text.encode(errors="backslashreplace"), status, _HEADERS)


def picture(svg: str) -> Response:
    """An SVG image, with headers that make it safe to open on its own."""
    return Response(svg, headers=_HEADERS, media_type="image/svg+xml")


async def form_of(request: Request) -> dict[str, list[str]]:
    """The fields of a form, each with its values. Raises InvalidInput."""
    try:
        return parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=10_000)
    except ValueError as error:
        raise InvalidInput(f"the form cannot be read: {error}") from error


async def back(request: Request) -> Response:
    """Redirect to the page in the field `back`, by default the overview.

    With a field `list`, redirect to the list of experiments with that query string.
    """
    form = await form_of(request)
    if "list" in form:
        query = form["list"][0] if _QUERY.fullmatch(form["list"][0]) else ""
        return redirect(request, f"/?{query}".rstrip("?"))
    rest = form.get("back", [""])[0]
    rest = rest if _REST.fullmatch(rest) else ""
    slash = "" if rest.startswith("?") or not rest else "/"
    return to_experiment(request, f"{slash}{rest}")


def redirect(request: Request, path: str) -> Response:
    """Redirect to a path below the prefix of the request."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}{path}", HTTPStatus.SEE_OTHER)


def to_experiment(request: Request, rest: str = "") -> Response:
    """Redirect to the experiment in the path, or to a page below it: ``/trials/3``."""
    return redirect(request, f"/experiments/{experiment_id(request)}{rest}")


async def ask(request: Request, question: str, query: Query) -> dict[str, Any]:
    """Ask about the trials of the experiment in the path. Raises as `Analysis.ask`."""
    answer = await context_of(request).analysis.ask(experiment_id(request), question, query)
    return dict(json.loads(answer.text))


def _rest(request: Request) -> str:
    if "id" not in request.path_params or request.method not in ("GET", "HEAD"):
        return ""
    path = request.url.path.partition(f"/experiments/{request.path_params['id']}")[2].lstrip("/")
    return path + (f"?{request.url.query}" if request.url.query else "")


@cache
def environment() -> Environment:
    """Templates with their filters and functions."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "moment": formats.moment,
        "duration": duration,
        "number": number,
        "limit": formats.limit,
        "cell": formats.cell,
        "whole": formats.whole,
        "rate": formats.rate,
        "web_link": web_link,
        "bytes": in_words,
        "how_it_ended": how_it_ended,
        "parameters": formats.parameters,
    }
    made.globals["plotly_script"] = static_files.plotly_script
    return made
