"""All places of a daemon's machines: `ledger` knows who has which, `line` whose turn it is; here they meet the clock.

One `Places` lives in a daemon, beside its connections, so that experiments that share a machine share its ledger.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from nni_manager.platform_kit.ledger import MachineLedger
from nni_manager.platform_kit.line import Line


class Places:
    """Of all machines. `now_s`: a clock that never goes back."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._machines: dict[str, MachineLedger] = {}
        self.line = Line(self._machines, now_s)
        self._alarm: asyncio.TimerHandle | None = None

    def machine(self, name: str, places: int) -> MachineLedger:
        """The one of this name; it has as many places as whoever knows of the most says."""
        machine = self._machines.setdefault(name, MachineLedger(name))
        machine.places = range(max(places, len(machine.places)))
        return machine

    def find(self, name: str) -> MachineLedger | None:
        return self._machines.get(name)

    def note_change(self) -> None:
        """Something of a machine changed: whoever has room now is told."""
        self.line.offer()
        self.watch_offers()

    def watch_offers(self) -> None:
        """An offer that nobody takes ends by itself."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if (ends_s := self.line.next_offer_ends_s) is not None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(max(0.0, ends_s - self._now_s()), self.note_change)
