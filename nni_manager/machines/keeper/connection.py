"""A connection to a keeper, and its unanswered requests."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol, cast

from nni_manager.domain.errors import PlatformError, PlatformUnavailable, SubmitRejected
from nni_manager.platform_kit.tasks import happened
from trial_runner import protocol


class Requests:
    """The unanswered requests to a keeper, over all its connections; numbers are never reused."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        #: The number of requests so far.
        self.asked = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def add(self) -> tuple[int, asyncio.Future[Any]]:
        """The number of a new request, and the future of its answer."""
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self.asked = number
        return number, answer

    def answer(self, number: int, result: object) -> None:
        """Delivers the answer to its request; an answer to a cancelled request is dropped."""
        if (answer := self._take(number)) is not None:
            answer.set_result(result)

    def refuse(self, number: int | None, kind: object, sentence: str) -> None:
        """Delivers a refusal to its request; `kind`: from the wire contract.

        A refusal of a cancelled request is dropped.
        """
        if (answer := self._take(number)) is not None:
            answer.set_exception(_error(kind, sentence))

    def fail_all(self, sentence: str) -> None:
        """Fails all requests with PlatformUnavailable: no answer will come."""
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(PlatformUnavailable(sentence))

    def _take(self, number: int | None) -> asyncio.Future[Any] | None:
        answer = None if number is None else self._waiting.pop(number, None)
        return None if answer is None or answer.done() else answer


def _error(kind: object, sentence: str) -> PlatformError:
    if kind == protocol.UNAVAILABLE:
        return PlatformUnavailable(sentence, refused=True)
    return SubmitRejected(sentence)


log = logging.getLogger(__name__)

#: A keeper that is silent for this many seconds is sent a request.
SILENCE_S = 10.0


class Client(Protocol):
    """The owner of a connection, which receives its messages."""

    def on_message(self, message: object) -> None:
        """Called with each message. Raises ValueError if it violates the wire contract."""

    def on_lost(self, connection: Connection, why: str) -> None:
        """Called when the connection has ended, or is about to."""

    def on_silence(self, connection: Connection, why: str) -> None:
        """Called when the keeper did not answer in time; the connection is closed."""


class Connection(asyncio.Protocol):
    """A connection to a keeper: splits the stream into messages for `client`."""

    transport: asyncio.Transport

    def __init__(self, client: Client) -> None:
        self._client = client
        self._decoder = protocol.Decoder()
        #: Whether anything was received since this was last set to False.
        self.has_spoken = False
        #: Time of the last reception, by the loop's clock.
        self.heard_s = float("-inf")
        #: This side closed the connection, as it was unusable.
        self.is_dropped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        self.has_spoken = True
        self.heard_s = asyncio.get_running_loop().time()
        try:
            for message in self._decoder.feed(data):
                self._client.on_message(message)
        except (ValueError, RecursionError, protocol.FrameTooLarge):
            log.exception("the keeper sent an invalid message; reconnecting")
            self.drop()

    def connection_lost(self, error: Exception | None) -> None:
        self._client.on_lost(self, str(error or "it ended"))

    def send(self, message: Mapping[str, Any]) -> None:
        self.transport.write(protocol.encode(dict(message)))

    def drop(self) -> None:
        """Closes the connection at once: further messages are useless."""
        self.is_dropped = True
        self.transport.abort()

    def give_up(self, seconds: float) -> None:
        self._client.on_silence(self, f"no answer for {seconds:g} s, it hangs or was stopped")
        self.drop()


async def ask_in_silence(connection: Connection, lost: asyncio.Event, ask: Callable[[], Awaitable[object]]) -> None:
    """Sends a request (`ask`) whenever the keeper is silent for `SILENCE_S`; returns when `lost` is set.

    `ask` has its own time limit. A hanging keeper does not close the connection, and while all slots are taken no other
    request would detect it.
    """
    while not lost.is_set():
        connection.has_spoken = False
        await happened(lost, asyncio.timeout(SILENCE_S))
        # While this side does not read, it receives nothing.
        if not (connection.has_spoken or lost.is_set()) and connection.transport.is_reading():
            with suppress(PlatformError):  # a refusal is an answer, too, and a lost connection needs none
                await ask()


class Patience:
    """A time limit for an answer. It is extended while the keeper sends other messages, as it does not hang then, and
    while this side does not read."""

    def __init__(self, connection: Connection, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._begin(seconds)

    def cancel(self) -> None:
        self._timer.cancel()

    def _begin(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end)

    def _end(self) -> None:
        quiet_s = asyncio.get_running_loop().time() - self._connection.heard_s
        if not self._connection.transport.is_reading():
            self._begin(self._seconds)
        elif quiet_s < self._seconds:
            self._begin(self._seconds - quiet_s)
        else:
            self._connection.give_up(self._seconds)
