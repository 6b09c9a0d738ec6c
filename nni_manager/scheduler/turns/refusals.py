"""The refused credentials of one training service.

A refusal may be over in a moment: a server that has just been started refuses all while its caches fill. So it is
tried again, and only a minute of refusals of one call, with no other answer between them, is a hold. The hold ends by
itself: one call a minute is tried, and the first one that is answered ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nni_manager.domain.experiment import Hold, HoldCode

#: Seconds of refusals that are a hold, and those between two calls of a service on hold.
HOLD_AFTER_S = 60.0
TRY_AGAIN_S = 60.0


class Refusals:
    """What was refused lately. `put_on_hold` and `end_hold` are called once each time; `wake`: a call may be tried."""

    def __init__(
        self, put_on_hold: Callable[[Hold], None], end_hold: Callable[[], None], wake: Callable[[], None]
    ) -> None:
        self._put_on_hold = put_on_hold
        self._end_hold = end_hold
        self._wake = wake
        #: Verb → since when every call of it was refused, by the loop's clock.
        self._since_s: dict[str, float] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self.is_held = False
        #: On hold, and one submission may be tried all the same.
        self.may_try = False

    def refused(self, verb: str, sentence: str) -> None:
        """Notes that the credentials were refused."""
        now_s = asyncio.get_running_loop().time()
        since_s = self._since_s.setdefault(verb, now_s)
        if not self.is_held and now_s - since_s >= HOLD_AFTER_S:
            self.is_held = True
            self._put_on_hold(Hold(code=HoldCode.BAD_CREDENTIALS, sentence=sentence))
        if self.is_held:
            self._try_later()

    def unanswered(self, verb: str) -> None:
        """Notes a failure that says nothing of credentials: what was refused before it does not count any more."""
        if not self.is_held:
            self._since_s.pop(verb, None)

    def accepted(self, verb: str) -> None:
        """Notes an answer: the credentials are good enough for this verb, and for all where a job was taken."""
        self._since_s.pop(verb, None)
        if verb == "submit":
            self._since_s.clear()
        if self.is_held and not self._since_s:
            self.forget()
            self._end_hold()

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
        self._wake()
