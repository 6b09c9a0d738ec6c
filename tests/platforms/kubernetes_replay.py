"""Recorded sequences of a real cluster, told again as a troubled API server tells them.

One clock for all kinds: it moves by one recorded event at a time, and what a list or a watch answers follows from where
it stands. Watches end in the middle of everything, tell old news again, and forget; lists fail.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.kubernetes.api.client import Object, Query, Refusal
from nni_manager.kubernetes.api.names import JOB


@dataclass(frozen=True)
class Recorded:
    """One event, in the order of the whole cluster."""

    version: int
    plural: str
    kind: str
    object: Object


def read(folder: Path, plurals: Sequence[str], jobs: Sequence[str]) -> list[Recorded]:
    """Of these kinds, in order of their resource versions; pods get the label of the job that they are of."""
    found = []
    for plural in plurals:
        for line in (folder / f"{plural}.jsonl").read_text().splitlines():
            event = json.loads(line)
            told, meta = event["object"], event["object"]["metadata"]
            if plural == "pods":
                job = next((name for name in jobs if meta["name"].startswith(f"{name}-")), None)
                meta["labels"] = {**(meta.get("labels") or {}), **({JOB: job} if job else {})}
            found.append(Recorded(int(meta["resourceVersion"]), plural, event["type"], told))
    return sorted(found, key=lambda event: event.version)


@dataclass
class Counts:
    """What went wrong for the readers of one kind."""

    cuts: int = 0
    repetitions: int = 0
    gone: int = 0
    failures: int = 0
    lists: int = 0


class Replay:
    """`advance` until it returns False; readers use it as their client."""

    def __init__(self, events: Sequence[Recorded], chance: random.Random, trouble: float) -> None:
        self._events, self._chance, self._trouble = events, chance, trouble
        self._at = 0
        self._moved = asyncio.Condition()
        #: Older versions are forgotten.
        self._compacted = 0
        self.counts: dict[str, Counts] = {}
        self.is_troubled = True

    @property
    def _version(self) -> int:
        return self._events[self._at - 1].version if self._at else 1

    async def advance(self) -> bool:
        """The next event happens."""
        async with self._moved:
            if self._at == len(self._events):
                return False
            self._at += 1
            if self._happens(0.3):
                self._compacted = self._version
            self._moved.notify_all()
        return True

    async def calm(self) -> None:
        """Nothing goes wrong any more."""
        async with self._moved:
            self.is_troubled = False
            self._moved.notify_all()

    def held(self, plural: str) -> dict[str, Object]:
        """What there is now, by name."""
        found: dict[str, Object] = {}
        for event in self._events[: self._at]:
            if event.plural == plural:
                found[event.object["metadata"]["name"]] = event.object
                if event.kind == "DELETED":
                    del found[event.object["metadata"]["name"]]
        return found

    async def call(self, method: str, path: str, *, query: Query = (), **_: Any) -> Object:
        """A list."""
        plural = path.rpartition("/")[2]
        counts = self._of(plural)
        if self._happens(0.5):
            counts.failures += 1
            raise PlatformUnavailable("the replayed server is away")
        counts.lists += 1
        return {"items": list(self.held(plural).values()), "metadata": {"resourceVersion": str(self._version)}}

    @asynccontextmanager
    async def lines(self, path: str, query: Query, limit_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch."""
        if self._happens(0.2):
            raise Refusal(status=500, reason="InternalError", message="the replayed server has hiccups")
        yield self._watch(path.rpartition("/")[2], int(dict(query)["resourceVersion"]), limit_s)

    async def _watch(self, plural: str, version: int, limit_s: float) -> AsyncIterator[bytes]:
        counts = self._of(plural)
        if version < self._compacted:
            counts.gone += 1
            yield _line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            return
        while True:
            seen = (self._at, self.is_troubled)
            for event in [one for one in self._events[: self._at] if one.version > version and one.plural == plural]:
                version = event.version
                yield _line(event.kind, event.object)
                async for line in self._trouble_after(plural, event, counts):
                    yield line
                if self._happens(1.0):
                    counts.cuts += 1
                    if self._chance.random() < 0.5:
                        raise PlatformUnavailable("the replayed watch broke")
                    return
            await self._change(seen, limit_s)

    async def _change(self, seen: tuple[int, bool], limit_s: float) -> None:
        """The clock has moved, or calm has come, or nothing more will happen for as long as a watch may last."""
        if self._at == len(self._events) and not self.is_troubled:
            return await asyncio.sleep(limit_s)
        async with self._moved:
            await self._moved.wait_for(lambda: seen != (self._at, self.is_troubled))

    async def _trouble_after(self, plural: str, event: Recorded, counts: Counts) -> AsyncIterator[bytes]:
        """Old news, as a server that was restored may tell them."""
        if self._happens(0.5):
            counts.repetitions += 1
            past = [one for one in self._events[: self._at] if one.plural == plural and one.version <= event.version]
            start = max(0, len(past) - self._chance.randint(1, 6))
            for one in past[start : start + self._chance.randint(1, 6)]:
                yield _line(one.kind, one.object)

    def _happens(self, weight: float) -> bool:
        return self.is_troubled and self._chance.random() < self._trouble * weight

    def _of(self, plural: str) -> Counts:
        return self.counts.setdefault(plural, Counts())


def _line(kind: str, told: Object) -> bytes:
    return json.dumps({"type": kind, "object": told}).encode()
