"""How much of a request's body is taken. Bytes are counted as they come: a chunked body does not say its size."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive


class BodyTooLarge(HTTPException):
    """Raised from `receive` in the middle of a body; applications turn it into their own form of refusal."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"the body is larger than the {limit / 2**20:g} MB that are taken; send less")


class LimitedBody:
    """A `receive` that hands over at most `limit` bytes of body. What comes after is dropped by the server, unread."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._taken = 0

    async def receive(self) -> Message:
        """Raises BodyTooLarge."""
        message = await self._receive()
        self._taken += len(message.get("body", b""))
        if self._taken > self._limit:
            raise BodyTooLarge(self._limit)
        return message
