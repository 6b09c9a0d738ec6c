"""plotly.js out of the installed plotly package, which is found and never imported: one file of 5 MB, a third of it
compressed."""

from __future__ import annotations

import asyncio
import gzip
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

#: The address names the release, so a browser asks once for each.
_FOR_EVER = "public, max-age=31536000, immutable"
_LEVEL = 6


def query() -> str:
    """What follows ``plotly.min.js`` in its address: the release."""
    return f"?v={_release()}"


async def script(request: Request) -> Response:
    """The script, compressed for browsers that take it so."""
    named = request.query_params.get("v") == _release()
    headers = {"Cache-Control": _FOR_EVER if named else "no-cache", "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(await asyncio.to_thread(_path().read_bytes), headers=headers, media_type="text/javascript")
    headers["Content-Encoding"] = "gzip"
    return Response(await asyncio.to_thread(_compressed), headers=headers, media_type="text/javascript")


@cache
def _release() -> str:
    return version("plotly")


@cache
def _compressed() -> bytes:
    return gzip.compress(_path().read_bytes(), _LEVEL, mtime=0)


@cache
def _path() -> Path:
    """Of the script. Raises FileNotFoundError: the package is damaged."""
    spec = find_spec("plotly")
    places = spec.submodule_search_locations if spec else None
    if not places:
        raise FileNotFoundError("the package plotly is not installed; charts need its script: pip install plotly")
    return Path(places[0]) / "package_data" / "plotly.min.js"
