"""Faults on demand: of requests, watches and the server."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, fields
from typing import Any

from tests.fakes.kubernetes import refusals


@dataclass
class Fault:
    """A fault of the next matching requests."""

    #: Regular expressions; "" matches all.
    method: str = ""
    path: str = ""
    #: Number of times; -1: forever.
    times: int = 1
    #: Delay of the answer in seconds.
    delay: float = 0.0
    #: Answer this code instead of processing the request, with this reason, message and Retry-After.
    status: int = 0
    reason: str = "InternalError"
    message: str = "told to fail"
    retry_after: int = 0
    #: "before": the connection ends without processing. "after": the request is processed, and the answer is lost.
    drop: str = ""
    #: Only watches: number of events until the end; delay per event in seconds; end with an event 410; half a line.
    watch_events: int = -1
    watch_delay: float = 0.0
    watch_gone: bool = False
    watch_garbage: bool = False

    @classmethod
    def read(cls, given: dict[str, Any]) -> Fault:
        if unknown := set(given) - {field.name for field in fields(cls)}:
            raise refusals.bad_request(f"a fault knows no {', '.join(sorted(unknown))}")
        return cls(**given)

    def fits(self, method: str, path: str) -> bool:
        return bool(re.search(self.method, method) and re.search(self.path, path))

    @property
    def of_watch(self) -> bool:
        return self.watch_events >= 0 or self.watch_delay > 0 or self.watch_gone or self.watch_garbage


class Faults:
    """The remaining faults."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        #: Number of requests with a fault.
        self.met = 0

    def add(self, fault: Fault) -> None:
        self._faults.append(fault)

    def clear(self) -> None:
        self._faults.clear()

    def take(self, method: str, path: str, watch: bool = False) -> Fault | None:
        for fault in self._faults:
            if fault.of_watch == watch and fault.fits(method, path):
                self.met += 1
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
                return fault
        return None

    async def before(self, fault: Fault | None) -> None:
        if fault is None:
            return
        await asyncio.sleep(fault.delay)
        if fault.status:
            headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
            raise refusals.Refused(fault.status, fault.reason, fault.message, headers=headers)
