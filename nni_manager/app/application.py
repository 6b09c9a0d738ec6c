"""What all doors serve: the API below its prefixes, the pages elsewhere, and the guard around both."""

from __future__ import annotations

from typing import cast

from starlette.types import Receive, Scope, Send
from uvicorn._types import ASGI3Application

from nni_manager.api.application import PREFIXES, create_api
from nni_manager.api.context import ApiContext
from nni_manager.api.guard import Guard
from nni_manager.config.settings import Settings


def create_application(context: ApiContext, settings: Settings) -> ASGI3Application:
    """One ASGI application."""
    api, pages = create_api(context), create_api(context)

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        chosen = api if str(scope.get("path", "")).startswith(PREFIXES) else pages
        await chosen(scope, receive, send)

    return cast(ASGI3Application, Guard(route, token=settings.token, hosts=(settings.host,)))
