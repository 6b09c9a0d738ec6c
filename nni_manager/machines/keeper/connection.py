"""A connection to a keeper, and its requests that are not answered yet."""

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
    """The requests to a keeper that wait for answers, over all its connections; numbers are never used twice."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        #: The number of requests so far.
        self.asked = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def add(self) -> tuple[int, asyncio.Future[Any]]:
        """The number of a new request, and its answer to come."""
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self.asked = number
        return number, answer

    def answer(self, number: int, result: object) -> None:
        """Gives the answer to its waiting request; an answer to a cancelled request is dropped."""
        if (answer := self._take(number)) is not None:
            answer.set_result(result)

    def refuse(self, number: int | None, kind: object, sentence: str) -> None:
        """Gives a refusal to its waiting request; `kind`: of the wire contract.

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

#: A keeper that says nothing for so many seconds is asked whether it is there.
SILENCE_S = 10.0


class Client(Protocol):
    """The owner of a connection, which hears what comes through it."""

    def on_message(self, message: object) -> None:
        """Called with each message. Raises ValueError when it is none of the wire contract's."""

    def on_lost(self, connection: Connection, why: str) -> None:
        """Called when the connection has ended, or is about to."""

    def on_silence(self, connection: Connection, why: str) -> None:
        """Called when the keeper did not answer in time; the connection is given up."""


class Connection(asyncio.Protocol):
    """A connection to a keeper: cuts what comes into messages, each of which `client` hears of."""

    transport: asyncio.Transport

    def __init__(self, client: Client) -> None:
        self._client = client
        self._decoder = protocol.Decoder()
        #: Something came since this was last made false.
        self.has_spoken = False
        #: When something came last, by the loop's clock.
        self.heard_s = float("-inf")
        #: This side ended the connection, as it was of no use.
        self.is_dropped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self.has_spoken = True
        self.heard_s = asyncio.get_running_loop().time()
        try:
            for message in self._decoder.feed(data):
                self._client.on_message(message)
        except (ValueError, RecursionError, protocol.FrameTooLarge):
            log.exception("the keeper sent something that is no message; connecting again")
            self.drop()

    def connection_lost(self, error: Exception | None) -> None:
        self._client.on_lost(self, str(error or "it ended"))

    def send(self, message: Mapping[str, Any]) -> None:
        self.transport.write(protocol.encode(dict(message)))

    def drop(self) -> None:
        """Ends the connection at once: what comes through it is of no use."""
        self.is_dropped = True
        self.transport.abort()

    def give_up(self, seconds: float) -> None:
        self._client.on_silence(self, f"no answer for {seconds:g} s, it hangs or was stopped")
        self.drop()


async def ask_in_silence(connection: Connection, lost: asyncio.Event, ask: Callable[[], Awaitable[object]]) -> None:
    """Asks (`ask`) whenever the keeper says nothing for `SILENCE_S`; returns when `lost` is set.

    `ask` has its own time limit: a keeper that hangs does not say so, and while all slots are taken no other request
    is sent that could find out.
    """
    while not lost.is_set():
        connection.has_spoken = False
        await happened(lost, asyncio.timeout(SILENCE_S))
        # While we do not read, nothing can be heard.
        if not (connection.has_spoken or lost.is_set()) and connection.transport.is_reading():
            with suppress(PlatformError):  # a refusal was heard as well, and what was lost needs no answer
                await ask()


class Patience:
    """A time limit for an answer. A keeper that says something else meanwhile works and does not hang; while this
    side does not read, nothing can come, and the time does not count."""

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
