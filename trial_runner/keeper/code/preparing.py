"""Accepted jobs whose code is not in place yet. They exist only in memory: after a keeper's death the manager submits
them again."""

import signal
from typing import Any, Callable, Dict, Optional

from trial_runner import protocol
from trial_runner.keeper.code.copying import Unpacking
from trial_runner.keeper.serving.requests import Message, Refusal, SpawnRequest, fault


class _Entry:
    def __init__(self, request: SpawnRequest, code: Message) -> None:
        self.request = request
        self.code = code
        self.progress: Dict[str, Any] = {"step": "unpacked", "done_bytes": 0, "size_bytes": 0}
        #: The connection requested this job.
        self.is_followed = True

    def describe(self) -> Dict[str, Any]:
        """The *job* of the wire contract."""
        return {
            "name": self.request.name,
            "owner": self.request.owner,
            "state": protocol.PREPARING,
            "pid": None,
            "started_ms": None,
            "started_ago_ms": None,
            "attempt_directory": self.request.attempt_directory,
            "reservation": self.request.reservation,
            "code": self.progress,
        }


class Preparing:
    """`start`: starts a job and returns its description, or raises Refusal; its argument says whether the job is
    followed. `send`: sends an event to the connected manager. `queue`: calls a function in order with requests."""

    def __init__(
        self,
        unpacking: Unpacking,
        start: Callable[[SpawnRequest, bool], Dict[str, Any]],
        send: Callable[[Message], None],
        queue: Callable[[Callable[[], None]], None],
    ) -> None:
        self._unpacking = unpacking
        self._start = start
        self._send = send
        self._queue = queue
        self._entries: Dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def describe(self) -> Dict[str, Dict[str, Any]]:
        """All jobs, by name."""
        return {name: entry.describe() for name, entry in self._entries.items()}

    def begin(self, request: SpawnRequest, code: Message) -> Dict[str, Any]:
        """Accepts a job and returns its description. Raises Refusal, OSError."""
        entry = _Entry(request, code)
        self._unpacking.begin(
            code, lambda refusal: self._done(entry, refusal), lambda *progress: self._note(entry, *progress)
        )
        self._entries[request.name] = entry
        return entry.describe()

    def follow(self, name: str, offsets: Optional[Dict[str, int]] = None) -> Optional[Dict[str, Any]]:
        """The description of a job, whose events go to the connection from now on; None: unknown name."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        entry.is_followed = True
        if offsets is not None:
            entry.request = entry.request._replace(offsets=offsets)
        return entry.describe()

    def disconnect(self) -> None:
        """Forgets the following connection: the next one must ask for each job."""
        for entry in self._entries.values():
            entry.is_followed = False

    def end(self, name: str) -> bool:
        """Drops a job that will not start, and reports its end. Returns whether it existed."""
        entry = self._entries.pop(name, None)
        if entry is None:
            return False
        end = {"exit_code": None, "signal": int(signal.SIGTERM), "ended_ms": None, "ended_ago_ms": 0}
        job = dict(entry.describe(), state=protocol.ENDED, stderr_tail="", **end)
        self._tell(entry, "ended", job=job)
        return True

    def _note(self, entry: _Entry, step: str, done: int, size: int) -> None:
        entry.progress = {"step": step, "done_bytes": done, "size_bytes": size}
        if self._is_wanted(entry):
            self._tell(entry, "changed", job=entry.describe())

    def _done(self, entry: _Entry, refusal: Optional[Refusal]) -> None:
        if not self._is_wanted(entry):
            self._unpacking.drop(entry.code)
        elif refusal is None:
            self._queue(lambda: self._start_now(entry))
        else:
            self._refuse(entry, refusal)

    def _start_now(self, entry: _Entry) -> None:
        if not self._is_wanted(entry):
            self._unpacking.drop(entry.code)
            return
        try:
            job = self._start(entry.request, entry.is_followed)
        except Refusal as refusal:
            self._refuse(entry, refusal)
            return
        except Exception as error:
            self._refuse(entry, fault(error))
            raise
        del self._entries[entry.request.name]
        self._tell(entry, "changed", job=job)

    def _refuse(self, entry: _Entry, refusal: Refusal) -> None:
        del self._entries[entry.request.name]
        self._tell(entry, "refused", kind=refusal.kind, message=refusal.message)

    def _is_wanted(self, entry: _Entry) -> bool:
        return self._entries.get(entry.request.name) is entry

    def _tell(self, entry: _Entry, event: str, **more: Any) -> None:
        if entry.is_followed:
            self._send(dict(more, event=event, name=entry.request.name, owner=entry.request.owner))
