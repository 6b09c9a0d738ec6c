"""The client of a keeper: one reconnecting connection, shared by all experiments of the daemon.

`trial_runner.protocol` defines the messages; `connection` is a single connection. Lines and ends of jobs go to the
listener that owns the job. While too many lines wait to be stored, the socket is not read: the trial's own file is the
buffer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from nni_manager.domain import version
from nni_manager.domain.errors import PlatformError, PlatformUnavailable
from nni_manager.machines.keeper.connection import Connection, Patience, Requests, ask_in_silence
from trial_runner import protocol
from trial_runner.wire.backoff import Backoff

log = logging.getLogger(__name__)

#: Maximum number of delivered but unstored lines; above it the socket is not read.
MAX_UNSTORED_LINES = 20_000
#: Seconds between attempts to reach a keeper; the last value repeats.
_RETRY_WAITS_S = (0.02, 0.1, 0.3, 1.0, 3.0)
#: Seconds after which an ended keeper counts as having started well: the next one starts at once, as ends of jobs go
#: unnoticed without a keeper. After a shorter life, the next start waits.
_WELL_STARTED_S = 0.1
#: A connection that we closed is reopened without waiting if it lasted this many seconds.
_STEADY_S = 3.0

#: Seconds that a request waits for a connection in progress.
_CONNECT_TIMEOUT_S = 20.0
#: A keeper without an answer for this many seconds hangs, or was stopped; a spawn takes milliseconds.
ANSWER_TIMEOUT_S = 20.0

#: Connects: (the protocol, which feeds the reader of messages) returns the transport. Starts a keeper if none runs.
Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[asyncio.Transport]]
Job = dict[str, Any]
#: Extra field of log records about an error that is handled here.
_BARRIER = {"action": "barrier"}


class Listener:
    """An owner of jobs at the keeper. This base class ignores all calls but keeps the connection."""

    async def on_connected(self) -> None:
        """Called after (re)connecting, before all other calls: selects the jobs to follow."""

    def on_lines(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> Awaitable[object]:
        """Called with complete lines of one outbox. The awaitable completes when they are stored, and raises if that
        fails."""
        return asyncio.sleep(0)

    def on_ended(self, job_name: str, job: Job) -> None:
        """Called when a job has ended, after `on_lines` with all of its lines, which may not be stored yet."""

    def on_changed(self, job_name: str, job: Job) -> None:
        """Called with news of an accepted job that does not run yet: its progress, or that it runs."""

    def on_refused(self, job_name: str, kind: str, sentence: str) -> None:
        """Called when an accepted job could not start; `kind` as for a refused ``spawn``."""

    def on_disconnected(self) -> None:
        """Called when the connection is lost: states are unknown until `on_connected`."""


class Watcher(Protocol):
    """A listener for the keeper itself and all its jobs."""

    async def on_up(self) -> None:
        """Called after (re)connecting, before all listeners. Raises PlatformUnavailable: the connection is unusable."""

    def on_down(self, why: str) -> None:
        """Called when the keeper becomes unreachable, and again when the reason has more details."""

    def on_end(self, job_name: str) -> None:
        """Called when all processes of this job have ended, before its listener is called."""


class OtherVersion(PlatformUnavailable):
    """The keeper has an incompatible version and still has jobs; it ends with the last of them."""


class Keeper:
    """A keeper, on this machine or another, as this daemon reaches it."""

    def __init__(self, connect: Connect, name: str = "local") -> None:
        self.name = name
        self._connect = connect
        self._listeners: dict[str, Listener] = {}
        self.watchers: list[Watcher] = []
        self._requests = Requests()
        self._connection: Connection | None = None
        self._needed = asyncio.Event()
        self._lost = asyncio.Event()
        self._changed = asyncio.Event()
        self._unstored = 0
        #: Time of the keeper's first answer on this connection, by the loop's clock; None: not yet.
        self._connected_s: float | None = None
        #: Why it is not connected; empty: it is, or need not be.
        self.trouble = ""
        #: The trouble is a keeper of another version that keeps its jobs.
        self.is_other_version = False

    @property
    def is_needed(self) -> bool:
        """Whether an experiment has jobs at the keeper."""
        return self._needed.is_set()

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def questions(self) -> int:
        """The number of requests sent to the keeper."""
        return self._requests.asked

    def has_listener(self, owner: str) -> bool:
        return owner in self._listeners

    async def run(self) -> None:
        """Keeps the connection while it has a listener. Ends only by cancellation; jobs continue."""
        backoff = Backoff(_RETRY_WAITS_S)
        try:
            while True:
                self._lost.clear()
                await self._needed.wait()
                if await self._serve():
                    backoff.reset()
                else:
                    await asyncio.sleep(backoff.next_wait())
        finally:
            self._close("the daemon is stopping")

    async def listen(self, owner: str, listener: Listener) -> None:
        """Starts calling `listener` about the jobs of `owner` (an experiment)."""
        self._listeners[owner] = listener
        if not self._needed.is_set():
            self.trouble = ""  # from an old search; a new request waits for another attempt
        self._needed.set()
        if self._connection is not None:
            await listener.on_connected()

    def leave(self, owner: str) -> None:
        """Removes the listener of `owner`. Idempotent. The connection closes with the last listener."""
        self._listeners.pop(owner, None)
        if not self._listeners:
            self._needed.clear()
            self._note_change()
            self._close("no experiment needs it")

    async def request(self, verb: str, *, patience_s: float | None = None, **arguments: Any) -> Any:
        """Sends a request to the keeper and returns its answer; without an answer, the connection is closed.

        Raises PlatformUnavailable (also when the connection breaks meanwhile) or SubmitRejected.
        """
        connection = self._connection or await self.until_connected()
        number, answer = self._requests.add()
        connection.send({"verb": verb, "id": number, **arguments})
        patience = Patience(connection, ANSWER_TIMEOUT_S if patience_s is None else patience_s)
        try:
            return await answer
        finally:
            patience.cancel()

    # Connection

    async def until_connected(self) -> Connection:
        """The connection. Waits a moment while a keeper is being started or searched, but not after a failure or loss.
        Raises PlatformUnavailable."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                while self._connection is None and not self._why_unreachable():
                    await self._changed.wait()
        if self._connection is None:
            reason = self._why_unreachable() or "no answer"
            raise PlatformUnavailable(f"the {self.name} keeper is unreachable: {reason}")
        return self._connection

    def _why_unreachable(self) -> str:
        """The reason why waiting for a connection is useless now; empty: one is being made."""
        if not self._needed.is_set():
            return "it has no listener"
        # `run` may be waiting for the listener that is calling this, so it cannot make another connection.
        return self.trouble or ("the connection broke" if self._lost.is_set() else "")

    def _note_change(self) -> None:
        """Wakes the requests that wait for the connection."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _serve(self) -> bool:
        """Serves one connection until its end; returns whether to reconnect at once."""
        self._connected_s = None
        connection: Connection | None = None
        try:
            connection = await self._open()
            if self._connection is not None:
                await ask_in_silence(self._connection, self._lost, lambda: self.request("hello"))
        except (OSError, PlatformError) as error:
            self._note_trouble(error)
            if self._connection is not None:
                self._connection.drop()
            self._close(str(error))
        return self._went_well(connection) or not self._needed.is_set()

    def _went_well(self, connection: Connection | None) -> bool:
        """Whether the keeper answered and then ended itself, or the connection was usable long enough."""
        if self._connected_s is None:
            return False
        lasted_s = asyncio.get_running_loop().time() - self._connected_s
        was_dropped = connection is None or connection.is_dropped
        return lasted_s >= (_STEADY_S if was_dropped else _WELL_STARTED_S)

    async def _open(self) -> Connection:
        transport = await self._connect(lambda: Connection(self))
        connection: Connection = transport.get_protocol()  # type: ignore[assignment]  # made above
        self._connection = connection
        if not self._needed.is_set():  # the last lease ended meanwhile
            self._close("no experiment needs it")
            return connection
        answer = await self.request("hello")  # a hanging keeper accepts connections, too
        self._check_version(answer)
        self.trouble, self.is_other_version = "", False
        self._connected_s = asyncio.get_running_loop().time()
        self._note_change()
        log.info("connected to keeper %s: %s", self.name, answer, extra={"action": "keeper"})
        for watcher in tuple(self.watchers):
            await watcher.on_up()
        for owner, listener in list(self._listeners.items()):
            await self._register(owner, listener)
        return connection

    async def _register(self, owner: str, listener: Listener) -> None:
        """Tells a listener that the keeper is connected; an error in one listener does not affect others.

        Raises OSError or PlatformError: the connection is unusable.
        """
        try:
            await listener.on_connected()
        except (OSError, PlatformError):
            raise
        except Exception:
            log.exception("experiment %s cannot follow its trials at keeper %s", owner, self.name, extra=_BARRIER)

    def _check_version(self, answer: object) -> None:
        """Refuses a keeper of another version, which outlives an upgrade of the daemon while it runs jobs.

        It ends with the last of them, and the next keeper reads its records. Raises OtherVersion.
        """
        hello = answer if isinstance(answer, Mapping) else {}
        theirs = str(hello.get("version"))
        if not version.fits(protocol.VERSION, theirs):
            raise OtherVersion(
                f"the {self.name} keeper (process {hello.get('pid')}) is version {theirs}, this daemon is"
                f" {protocol.VERSION}: its trials continue, and their results are read when the last of them has ended;"
                " to continue with them at once, start the daemon of that version again"
            )

    def _note_trouble(self, error: Exception) -> None:
        if str(error) != self.trouble:
            log.warning("keeper %s: %s", self.name, error)
        self.trouble, self.is_other_version = str(error), isinstance(error, OtherVersion)
        for watcher in tuple(self.watchers):
            watcher.on_down(self.trouble)
        self._note_change()

    def _close(self, why: str) -> None:
        if self._connection is not None:
            self._connection.transport.close()
            self.on_lost(self._connection, why)

    def on_lost(self, connection: Connection, why: str) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._unstored = 0
        self._lost.set()
        self._note_change()
        self._requests.fail_all(f"the connection to the {self.name} keeper broke: {why}")
        for watcher in tuple(self.watchers):
            watcher.on_down(why)
        for listener in list(self._listeners.values()):
            listener.on_disconnected()

    def on_silence(self, connection: Connection, why: str) -> None:
        self._note_trouble(PlatformUnavailable(why))
        self.on_lost(connection, why)

    # Messages

    def on_message(self, message: object) -> None:
        """Handles a message of the keeper. Raises ValueError if it violates the wire contract."""
        match message:
            case {"event": str(event), **fields}:
                self._on_event(event, fields)
            case {"id": int(number), "result": result}:
                self._requests.answer(number, result)
            case {"id": int() | None as number, "error": {"kind": kind, "message": str(sentence)}}:
                self._requests.refuse(number, kind, sentence)
            case _:
                raise ValueError("neither an answer nor an event")

    def _on_event(self, event: str, fields: Mapping[Any, Any]) -> None:
        match event, fields:
            case "lines", {
                "owner": str(),
                "name": str(),
                "outbox": str(),
                "start": int(),
                "end": int(),
                "lines": list(),
            }:
                self._on_lines(fields)
            case "ended", {"owner": str(owner), "name": str(name), "job": {"state": str()} as job}:
                if (listener := self._at_end(owner, name)) is not None:
                    listener.on_ended(name, job)
            case "changed", {"owner": str(owner), "name": str(name), "job": {"state": str()} as job}:
                if (listener := self._listeners.get(owner)) is not None:
                    listener.on_changed(name, job)
            case "refused", {"owner": str(owner), "name": str(name), "kind": str(kind), "message": str(sentence)}:
                if (listener := self._at_end(owner, name)) is not None:
                    listener.on_refused(name, kind, sentence)
            case "lines" | "ended" | "changed" | "refused", _:
                raise ValueError(f"no event '{event}' of the wire contract")
            case _:
                pass  # from a newer keeper, not relevant here

    def _at_end(self, owner: str, name: str) -> Listener | None:
        """The listener to call about a job's end, after the watchers."""
        for watcher in tuple(self.watchers):
            watcher.on_end(name)
        return self._listeners.get(owner)

    def _on_lines(self, message: Mapping[Any, Any]) -> None:
        owner, lines = message["owner"], message["lines"]
        listener = self._listeners.get(owner)
        if listener is None:
            return
        stored = asyncio.ensure_future(
            listener.on_lines(message["name"], message["outbox"], message["start"], message["end"], lines)
        )
        connection = self._connection
        self._unstored += len(lines)
        if self._unstored > MAX_UNSTORED_LINES and connection is not None:
            connection.transport.pause_reading()
        stored.add_done_callback(lambda done: self._on_stored(connection, owner, done, len(lines)))

    def _on_stored(self, connection: Connection | None, owner: str, stored: asyncio.Future[object], count: int) -> None:
        error = None if stored.cancelled() else stored.exception()
        if connection is None or connection is not self._connection:
            return
        if (stored.cancelled() or error is not None) and owner in self._listeners:
            log.error("results were not stored; reconnecting to receive them again", exc_info=error)
            connection.drop()
            return
        self._unstored -= count
        if self._unstored <= MAX_UNSTORED_LINES // 2 and not connection.transport.is_reading():
            connection.transport.resume_reading()
