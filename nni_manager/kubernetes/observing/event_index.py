"""Events by what they are about, to be found by a job's name without a look at all those of the namespace."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from nni_manager.kubernetes.api.client import Object


class EventIndex:
    """A cluster keeps the events of an hour: hundreds of jobs would look at tens of thousands each."""

    def __init__(self, events: Iterable[Object]) -> None:
        #: (name of the object that it is about, its own name), in order.
        self._keys: list[tuple[str, str]] = []
        self._events: dict[str, Object] = {}
        for event in events:
            self.put(event)

    def put(self, event: Object) -> None:
        """Adds an event, or what became of it: under a name that comes again it may be about another object."""
        name = str(event["metadata"]["name"])
        if (known := self._events.get(name)) is not None and about(known) != about(event):
            self.drop(known)
        if name not in self._events:
            insort(self._keys, (about(event), name))
        self._events[name] = event

    def drop(self, event: Object) -> None:
        name = str(event["metadata"]["name"])
        if (known := self._events.pop(name, None)) is not None:
            del self._keys[bisect_left(self._keys, (about(known), name))]

    def of_job(self, name: str) -> Iterator[Object]:
        """The events about a job and about what is called after it, such as its pods: ``{name}-…``.

        A hyphen is the first character of those that names may have, so all of them stand behind the job's own.
        """
        for at in range(bisect_left(self._keys, (name, "")), len(self._keys)):
            whose, event = self._keys[at]
            if whose != name and not whose.startswith(f"{name}-"):
                return
            yield self._events[event]


def about(event: Object) -> str:
    """The name of the object that an event is about; empty: it names none."""
    return str((event.get("involvedObject") or {}).get("name") or "")
