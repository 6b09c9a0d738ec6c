"""Static files of the pages: our own, and plotly's script.

The script is one file of 5 MB in the installed package plotly, which is located but not imported.
"""

from __future__ import annotations

import asyncio
import gzip
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

#: The address contains the release, so browsers fetch each release once.
_FOR_EVER = "public, max-age=31536000, immutable"
_LEVEL = 6


OWN = Path(__file__).parent / "static"


class _OwnFiles(StaticFiles):
    """Files that browsers revalidate on each use.

    Modules import each other by plain names, so modules of two releases must not mix.
    """

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def plotly_script() -> str:
    """Name of plotly's script below ``/static/``."""
    return f"plotly.min.js?v={_release()}"


async def _plotly(request: Request) -> Response:
    """plotly's script, compressed if the browser accepts gzip."""
    named = request.query_params.get("v") == _release()
    headers = {"Cache-Control": _FOR_EVER if named else "no-cache", "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(await asyncio.to_thread(_path().read_bytes), headers=headers, media_type="text/javascript")
    headers["Content-Encoding"] = "gzip"
    return Response(await asyncio.to_thread(compressed), headers=headers, media_type="text/javascript")


@cache
def _release() -> str:
    return version("plotly")


@cache
def compressed() -> bytes:
    """plotly's script, as gzip."""
    return gzip.compress(_path().read_bytes(), _LEVEL, mtime=0)


@cache
def _path() -> Path:
    """Path of the script. Raises FileNotFoundError if the package is not installed."""
    spec = find_spec("plotly")
    places = spec.submodule_search_locations if spec else None
    if not places:
        raise FileNotFoundError(
            "the package plotly is not installed, and charts need its script; run `pip install plotly`"
        )
    return Path(places[0]) / "package_data" / "plotly.min.js"


ROUTES = [
    Route("/static/plotly.min.js", _plotly),
    Mount("/static", _OwnFiles(directory=OWN)),
]
