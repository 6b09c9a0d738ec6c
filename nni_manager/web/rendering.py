"""Templates → answers. The templating library is imported with the first page, not with the daemon."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse

from nni_manager.web import formats

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent

#: Nothing from other hosts, nothing inline, nobody's frame.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def render(request: Request, template: str, status: int = 200, **values: object) -> HTMLResponse:
    """`base` in templates is what stands before every path of ours."""
    values |= {
        "base": request.scope.get("root_path", ""), "version": request.app.state.context.version,
        "on_endpoint": is_on_endpoint(request),
    }  # fmt: skip
    text = _environment().get_template(template).render(values)
    # parameters may hold halves of characters, for which UTF-8 has no bytes
    return HTMLResponse(text.encode(errors="backslashreplace"), status, _HEADERS)


def is_on_endpoint(request: Request) -> bool:
    """Whether the page came by a port that shows one experiment alone: `app.endpoint_application` notes it."""
    return "nni_experiment" in request.scope.get("state", {})


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "moment": formats.moment, "duration": formats.duration, "number": formats.number, "limit": formats.limit,
        "parameters": formats.parameters,
    }  # fmt: skip
    return environment
