"""Imports the pages after the daemon's start, or with the first request.

They are a tenth of a daemon's imports; a command that starts a daemon does not wait for them.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from nni_manager.web.context import PagesContext

#: Seconds after the start, when the first trials of a command are under way.
_SOON_S = 2.0


class LatePages:
    """The application of `web.pages`, and the report of `web.report`."""

    def __init__(self, context: PagesContext) -> None:
        self._context = context
        self._pages: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._pages is None:
            await asyncio.to_thread(_import_pages)
            from nni_manager.web.pages import create_pages

            self._pages = self._pages or create_pages(self._context)
        await self._pages(scope, receive, send)

    async def report(self, id: str) -> bytes:
        """An experiment's report as HTML. Raises NotFound, StoreError, AnalysisUnavailable."""
        await asyncio.to_thread(_import_pages)
        from nni_manager.web.report import build

        return await build(self._context, id)

    def import_soon(self) -> None:
        """Import the pages after the start, so that the first view does not wait for them, either."""
        loop = asyncio.get_running_loop()
        loop.call_later(_SOON_S, loop.run_in_executor, None, _import_pages)


def _import_pages() -> None:
    """Import the pages. Takes about 50 ms, so call it in a thread."""
    from nni_manager.web import pages, report  # noqa: F401 - imported for later use
