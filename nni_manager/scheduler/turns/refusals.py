"""The refused credentials of one training service.

A refusal may be over in a moment: a server that has just been started refuses all while its caches fill. So it is
tried again, and only a minute of refusals of one call, with no other answer between them, is a hold. The hold ends by
itself: one call a minute is tried, and the first one that is answered ends it.
"""

from __future__ import annotations

import asyncio

from nni_manager.domain.errors import BadCredentials, PlatformError
from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.scheduler.turns.inbox import Inbox

#: Seconds of refusals that are a hold, and those between two calls of a service on hold.
HOLD_AFTER_S = 60.0
TRY_AGAIN_S = 60.0


class Refusals:
    """What `service` refused lately; `inbox` hears of its hold, of that hold's end, and when a call may be tried."""

    def __init__(self, inbox: Inbox, service: str) -> None:
        self._inbox = inbox
        self._service = service
        #: Verb → since when every call of it was refused, by the loop's clock.
        self._since_s: dict[str, float] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self.is_held = False
        #: On hold, and one submission may be tried all the same.
        self.may_try = False

    def failed(self, verb: str, error: PlatformError) -> None:
        """Notes a failure. One that says nothing of credentials ends the minute of those that do."""
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
        """Notes an answer: the credentials are good enough for this verb, and for all where a job was taken."""
        self._since_s.pop(verb, None)
        if verb == "submit":
            self._since_s.clear()
        if self.is_held and not self._since_s:
            self.forget()
            self._inbox.end_hold(self._service)

    def begin_try(self) -> None:
        """Notes that a submission is on its way: on hold, the next one may come in a minute."""
        if self.is_held:
            self._try_later()

    def forget(self) -> None:
        """Begins anew, as a person has put something right."""
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
