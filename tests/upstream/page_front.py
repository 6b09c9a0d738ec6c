"""NNI 3.0's own web page, unmodified, in front of an endpoint of ours, on one origin.

NNI's manager serves page and API. Ours serves only the API and the logs, so this proxy serves the page from the wheel.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tests.browser.shared_page import Stage

#: Hop-by-hop headers, which a proxy does not forward.
_OWN_HEADERS = ("connection", "content-length", "host", "keep-alive", "origin", "transfer-encoding")


def static_files(python: Path) -> Path:
    """The page's folder in the environment of that interpreter."""
    (folder,) = (python.parent.parent / "lib").glob("python3*/site-packages/nni_node/static")
    return folder


@asynccontextmanager
async def front(static: Path, stage: tuple[Stage, str], endpoint: str) -> AsyncIterator[str]:
    """The page's address, below the prefix of the endpoint.

    `stage`: application that serves all tests at one address. `endpoint`: its address, ending in ``/``.
    """
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        application = _Front(static, httpx.URL(endpoint), client)
        async with stage[0].play(application, asyncio.Event()):
            yield f"{stage[1]}{application.prefix}/"


class _Front:
    def __init__(self, static: Path, endpoint: httpx.URL, client: httpx.AsyncClient) -> None:
        self._static = static
        self._endpoint = endpoint
        self._client = client
        self.prefix = endpoint.path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await (await self._answer(Request(scope, receive)))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path.removeprefix(f"{self.prefix}/")
        if path == request.url.path:
            return PlainTextResponse("outside of the prefix", 404)
        if path.startswith(("api/v1/nni/", "logs/")):
            return await self._pass_on(request)
        file = self._static / path
        return FileResponse(file if path and file.is_file() else self._static / "index.html")

    async def _pass_on(self, request: Request) -> Response:
        """Forward a request with the endpoint's own origin; the answer is unchanged."""
        headers = {name: value for name, value in request.headers.items() if name not in _OWN_HEADERS}
        if "origin" in request.headers:
            headers["origin"] = f"http://{self._endpoint.netloc.decode()}"
        url = self._endpoint.copy_with(raw_path=f"{request.url.path}?{request.url.query}".rstrip("?").encode())
        asked = self._client.build_request(request.method, url, headers=headers, content=await request.body())
        answer = await self._client.send(asked, stream=True)
        kept = {name: value for name, value in answer.headers.items() if name not in _OWN_HEADERS}
        return StreamingResponse(_bytes(answer), answer.status_code, kept)


async def _bytes(answer: httpx.Response) -> AsyncIterator[bytes]:
    """The compressed body; its Content-Encoding header is kept."""
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await answer.aclose()
