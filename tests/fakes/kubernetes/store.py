"""The objects, their resource versions and changes, as in etcd.

A stored object is never changed in place: a change stores a new object.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.kubernetes.managed_fields import with_managed_fields

Object = dict[str, Any]
Address = tuple[str, str]  # namespace ("" for the cluster's), name

#: Number of changes kept for watches; a watch that starts earlier gets 410.
KEPT_CHANGES = 5_000


@dataclass(frozen=True)
class Change:
    """A change of one object. `before`: None for a new one; `after`: None for a deleted one."""

    revision: int
    key: str
    before: Object | None
    after: Object | None
    #: The last version of the object; in a DELETED event it has the resource version of the deletion.
    last: Object
    _lines: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    def line(self, event: str) -> bytes:
        """Its watch event, encoded once for all watches."""
        if event not in self._lines:
            self._lines[event] = json.dumps({"type": event, "object": self.last}).encode() + b"\n"
        return self._lines[event]


class Store:
    """All objects by resource and address."""

    def __init__(self, journal: Path | None = None, *, managed_fields: bool = False) -> None:
        self._managed_fields = managed_fields
        self.revision = 1000
        #: Changes up to this revision are forgotten.
        self.compacted = 1000
        self._objects: dict[str, dict[Address, Object]] = {}
        self._changes: deque[Change] = deque()
        self._listeners: list[Callable[[Change], None]] = []
        self._journal = None
        if journal is not None:
            self._replay(journal)
            self._rewrite(journal)
            self._journal = journal.open("a", encoding="utf-8")

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def get(self, key: str, address: Address) -> Object | None:
        return self._objects.get(key, {}).get(address)

    def all(self, key: str, namespace: str | None = None) -> list[Object]:
        """The objects of one resource, ordered by address."""
        held = self._objects.get(key, {})
        return [held[at] for at in sorted(held) if namespace is None or at[0] == namespace]

    def everything(self) -> Iterator[tuple[str, Object]]:
        for key, held in list(self._objects.items()):
            for obj in list(held.values()):
                yield key, obj

    def put(self, key: str, address: Address, obj: Object) -> Object:
        """Store an object with the next revision."""
        before = self._objects.setdefault(key, {}).get(address)
        self.revision += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        obj = with_managed_fields(obj) if self._managed_fields else obj
        self._objects[key][address] = obj
        self._record(Change(self.revision, key, before, obj, obj), address)
        return obj

    def remove(self, key: str, address: Address) -> Object:
        before = self._objects[key].pop(address)
        self.revision += 1
        last = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.revision)}}
        self._record(Change(self.revision, key, before, None, last), address)
        return last

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` for every change from now on; returns a function that unsubscribes."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def since(self, revision: int, key: str) -> list[Change]:
        """Changes after a revision, which must not be forgotten yet."""
        return [change for change in self._changes if change.revision > revision and change.key == key]

    def compact(self) -> None:
        """Forget all changes, so that every older revision is too old for a watch."""
        self._changes.clear()
        self.compacted = self.revision

    def _record(self, change: Change, address: Address) -> None:
        self._changes.append(change)
        while len(self._changes) > KEPT_CHANGES:
            self.compacted = self._changes.popleft().revision
        if self._journal is not None:
            self._journal.write(json.dumps([change.revision, change.key, *address, change.after]) + "\n")
            self._journal.flush()
        for listener in list(self._listeners):
            listener(change)

    def _replay(self, journal: Path) -> None:
        """Read the journal; a killed server may leave an incomplete last line."""
        if not journal.exists():
            return
        for line in journal.read_text(encoding="utf-8").splitlines():
            try:
                revision, key, namespace, name, obj = json.loads(line)
            except ValueError:
                continue
            self.revision = max(self.revision, revision)
            held = self._objects.setdefault(key, {})
            if obj is None:
                held.pop((namespace, name), None)
            else:
                held[namespace, name] = obj
        self.compacted = self.revision

    def _rewrite(self, journal: Path) -> None:
        """Compact the journal."""
        fresh = journal.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(json.dumps([self.revision, "", "", "", None]) + "\n")
            for key, held in self._objects.items():
                for (namespace, name), obj in held.items():
                    revision = int(obj["metadata"]["resourceVersion"])
                    file.write(json.dumps([revision, key, namespace, name, obj]) + "\n")
        fresh.replace(journal)
