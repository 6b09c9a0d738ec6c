"""What was asked of a keeper and is not answered yet."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from nni_manager.domain.errors import PlatformError, PlatformUnavailable, SubmitRejected
from trial_runner import protocol


class Requests:
    """Of one connection after the other; numbers are never used twice."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        #: So many were asked.
        self.asked = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def add(self) -> tuple[int, asyncio.Future[Any]]:
        """The number of a new one, and its answer to come."""
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self.asked = number
        return number, answer

    def answer(self, number: int, result: object) -> None:
        """Quiet for one that nobody waits for any more."""
        if (answer := self._take(number)) is not None:
            answer.set_result(result)

    def refuse(self, number: int | None, kind: object, sentence: str) -> None:
        """Quiet for one that nobody waits for any more. `kind`: of the wire contract."""
        if (answer := self._take(number)) is not None:
            answer.set_exception(_error(kind, sentence))

    def fail_all(self, sentence: str) -> None:
        """No answer will come."""
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
