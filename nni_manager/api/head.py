"""HEAD wherever GET is: the same answer, without its body."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """Around an application that knows GET alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            return await self._app(scope, receive, send)
        is_answered = False

        async def send_head(message: Message) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        async def receive_until_answered() -> Message:
            """Then the client has all it wanted: a stream that would go on for ever ends."""
            return {"type": "http.disconnect"} if is_answered else await receive()

        await self._app({**scope, "method": "GET"}, receive_until_answered, send_head)
