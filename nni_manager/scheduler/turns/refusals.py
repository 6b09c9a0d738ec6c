"""Failing calls of an adapter: their time limits, and refused credentials.

A refusal may be temporary: a server that was just started refuses all calls while its caches fill. So calls are
retried, and only a minute of refusals of one verb, without another answer, causes a hold. The hold ends automatically:
one call a minute is tried, and the first accepted one ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from nni_manager.domain.errors import BadCredentials, PlatformError, PlatformUnavailable
from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.platform_kit.contract import TIME_LIMITS_S, Platform
from nni_manager.scheduler.turns.inbox import Inbox

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Maximum seconds for leaving an adapter.
_EXIT_S = 10.0


async def leave(platform: Platform[Any]) -> None:
    """Leaves the adapter. Raises its exceptions, and TimeoutError. In a cancelled task the error is logged and the
    cancellation continues, as another error would cause a reconnect."""
    task = asyncio.current_task()
    try:
        async with asyncio.timeout(_EXIT_S):
            await platform.__aexit__(None, None, None)
    except Exception as error:
        if task is None or not task.cancelling():
            raise
        log.warning("leaving an adapter failed: %r", error, exc_info=error, extra={"action": "barrier"})
        raise asyncio.CancelledError from None


async def within_limit(service: str, verb: str, ask: Callable[[], Awaitable[T]]) -> T:
    """The result of an adapter's verb. Raises its exceptions, and PlatformUnavailable on timeout."""
    limit_s = TIME_LIMITS_S[verb]
    try:
        async with asyncio.timeout(limit_s) as limit:
            return await ask()
    except TimeoutError:
        if not limit.expired():
            raise
        raise PlatformUnavailable(f"{service}: no answer to '{verb}' within {limit_s:.0f} s") from None


#: Seconds of refusals before a hold, and between two calls during it.
HOLD_AFTER_S = 60.0
TRY_AGAIN_S = 60.0


class Refusals:
    """Tracks refusals of `service`; starts and ends its hold through `inbox`."""

    def __init__(self, inbox: Inbox, service: str) -> None:
        self._inbox = inbox
        self._service = service
        #: Verb → start of the period in which all its calls were refused, by the loop's clock.
        self._since_s: dict[str, float] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self.is_held = False
        #: During the hold: one submission may be tried now.
        self.may_try = False

    def failed(self, verb: str, error: PlatformError) -> None:
        """Notes a failed call. A failure of another kind restarts the minute."""
        if isinstance(error, BadCredentials):
            self._refused(verb, str(error))
        elif not self.is_held:
            self._since_s.pop(verb, None)

    def _refused(self, verb: str, sentence: str) -> None:
        now_s = asyncio.get_running_loop().time()
        since_s = self._since_s.setdefault(verb, now_s)
        if not self.is_held and now_s - since_s >= HOLD_AFTER_S:
            self.is_held = True
            self._inbox.put_on_hold(Hold(code=HoldCode.BAD_CREDENTIALS, sentence=sentence), self._service)
        if self.is_held:
            self._try_later()

    def accepted(self, verb: str) -> None:
        """Notes an accepted call: the credentials work for this verb; an accepted submission, for all verbs."""
        self._since_s.pop(verb, None)
        if verb == "submit":
            self._since_s.clear()
        if self.is_held and not self._since_s:
            self.forget()
            self._inbox.end_hold(self._service)

    def begin_try(self) -> None:
        """Notes a submission; during the hold the next one may follow in a minute."""
        if self.is_held:
            self._try_later()

    def forget(self) -> None:
        """Resets everything, as the user fixed something."""
        self._since_s.clear()
        self.is_held = self.may_try = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _try_later(self) -> None:
        self.may_try = False
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(TRY_AGAIN_S, self._let_try)

    def _let_try(self) -> None:
        self._alarm = None
        self.may_try = True
        self._inbox.wake()
