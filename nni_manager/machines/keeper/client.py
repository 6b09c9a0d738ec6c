"""The client of a keeper: one connection, made again whenever it is lost, shared by all experiments of the daemon.

The keeper's words are in `trial_runner.protocol`; one connection is `connection`'s. Lines and ends of jobs go to
the listener that owns the job. While too many lines wait to be stored the socket is not read: the trial's own file is
the buffer.
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

#: Lines handed over and not stored yet, above which the socket is not read.
MAX_UNSTORED_LINES = 20_000
#: Waits between two tries to reach a keeper, in seconds; the last one repeats.
_RETRY_WAITS_S = (0.02, 0.1, 0.3, 1.0, 3.0)
#: A keeper that ends so many seconds after the connection, or later, had started well: another is started at once,
#: since ends of jobs are not seen without one. After a keeper that ends sooner, the next start waits.
_WELL_STARTED_S = 0.1
#: A connection that we gave up is made again without a wait when it had lasted so many seconds.
_STEADY_S = 3.0

#: How long a request waits for a connection that is being made, in seconds.
_CONNECT_TIMEOUT_S = 20.0
#: A keeper that answers nothing for so many seconds hangs, or was stopped; a spawn takes milliseconds.
ANSWER_TIMEOUT_S = 20.0

#: Makes a connection: (reader of messages is fed by the protocol) returns the transport. Starts a keeper if none runs.
Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[asyncio.Transport]]
Job = dict[str, Any]
#: The extra field of log records about a fault that ends here.
_BARRIER = {"action": "barrier"}


class Listener:
    """An owner of jobs at the keeper, called about them; this one ignores what it hears, and keeps the connection."""

    async def on_connected(self) -> None:
        """Called when the keeper was (re)connected: says which jobs to follow. Nothing comes before that."""

    def on_lines(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> Awaitable[object]:
        """Called with complete lines of one outbox; the awaitable ends when they are stored, fails when they are
        not."""
        return asyncio.sleep(0)

    def on_ended(self, job_name: str, job: Job) -> None:
        """Called when a job has ended, after `on_lines` with all of its lines, which need not be stored yet."""

    def on_changed(self, job_name: str, job: Job) -> None:
        """Called with news of a job that was accepted and did not run: how far it is, or that it runs."""

    def on_refused(self, job_name: str, kind: str, sentence: str) -> None:
        """Called when a job that was accepted was not started after all; `kind` as of a refused ``spawn``."""

    def on_disconnected(self) -> None:
        """Called when the connection is lost: nothing is known until `on_connected`."""


class Watcher(Protocol):
    """A listener that is called about the keeper itself and all its jobs."""

    async def on_up(self) -> None:
        """Called when the keeper was (re)connected, before any listener. Raises PlatformUnavailable: it is of no
        use."""

    def on_down(self, why: str) -> None:
        """Called when the keeper cannot be asked, and again when there is more to say about why."""

    def on_end(self, job_name: str) -> None:
        """Called when no process of this job is left, before its listener is called."""


class OtherVersion(PlatformUnavailable):
    """The keeper has an incompatible version and still has jobs; it ends with the last of them."""


class Keeper:
    """A keeper, of this machine or of another, as this daemon reaches it."""

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
        #: When the keeper of this connection answered first, by the loop's clock; None: not yet.
        self._connected_s: float | None = None
        #: Why there is no connection; empty while there is one or none is needed.
        self.trouble = ""
        #: The trouble is that a keeper of another version is there and keeps its jobs.
        self.is_other_version = False

    @property
    def is_needed(self) -> bool:
        """Whether some experiment has jobs at the keeper."""
        return self._needed.is_set()

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def questions(self) -> int:
        """The number of questions that the keeper was asked."""
        return self._requests.asked

    def has_listener(self, owner: str) -> bool:
        return owner in self._listeners

    async def run(self) -> None:
        """Keeps the connection while it has a listener. Ends only by cancellation; jobs run on."""
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
        """Calls `listener` about the jobs of `owner` (an experiment) from now on."""
        self._listeners[owner] = listener
        if not self._needed.is_set():
            self.trouble = ""  # of a search long ago: a request made now waits for another try
        self._needed.set()
        if self._connection is not None:
            await listener.on_connected()

    def leave(self, owner: str) -> None:
        """Ends the listening of `owner`. Idempotent. The last listener's leaving closes the connection."""
        self._listeners.pop(owner, None)
        if not self._listeners:
            self._needed.clear()
            self._note_change()
            self._close("no experiment needs it")

    async def request(self, verb: str, *, patience_s: float | None = None, **arguments: Any) -> Any:
        """Sends a request to the keeper and waits for its answer; without one the connection is given up.

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
        """The connection, once there is one: while a keeper is started or looked for, this waits a moment; after
        a failure or loss it does not. Raises PlatformUnavailable."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                while self._connection is None and not self._why_unreachable():
                    await self._changed.wait()
        if self._connection is None:
            reason = self._why_unreachable() or "no answer"
            raise PlatformUnavailable(f"the {self.name} keeper cannot be reached: {reason}")
        return self._connection

    def _why_unreachable(self) -> str:
        """The reason why waiting for a connection is of no use now; empty while one is being made."""
        if not self._needed.is_set():
            return "it has no listener"
        # `run` may be waiting for the very listener that asks, so it cannot make another one.
        return self.trouble or ("the connection broke" if self._lost.is_set() else "")

    def _note_change(self) -> None:
        """Wakes the requests that wait for the connection."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _serve(self) -> bool:
        """Serves one connection from begin to end; answers whether another may be made at once."""
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
        """Whether the keeper answered, and then ended by itself or had a connection that was of use for long enough."""
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
        answer = await self.request("hello")  # one that hangs takes connections all the same
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
        """Tells a listener that the keeper is connected; a listener with a fault harms no other.

        Raises OSError or PlatformError: the connection is of no use.
        """
        try:
            await listener.on_connected()
        except (OSError, PlatformError):
            raise
        except Exception:
            log.exception("experiment %s cannot follow its trials at keeper %s", owner, self.name, extra=_BARRIER)

    def _check_version(self, answer: object) -> None:
        """Refuses a keeper of another version, which outlives an upgrade of the daemon while it runs jobs.

        Left alone, it ends with the last of them, and what it kept of them is read by the next. Raises OtherVersion.
        """
        hello = answer if isinstance(answer, Mapping) else {}
        theirs = str(hello.get("version"))
        if not version.fits(protocol.VERSION, theirs):
            raise OtherVersion(
                f"the {self.name} keeper (process {hello.get('pid')}) is version {theirs}, this daemon is"
                f" {protocol.VERSION}: its trials run on, and their results are read when the last of them has ended;"
                " to go on with them at once, start the daemon of that version again"
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
        """Takes a message of the keeper. Raises ValueError when it is none of the wire contract's."""
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
                pass  # of a newer keeper, and not for us

    def _at_end(self, owner: str, name: str) -> Listener | None:
        """The listener that hears of a job's end next, after the watchers."""
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
            log.error("results were not stored; connecting again to get them once more", exc_info=error)
            connection.drop()
            return
        self._unstored -= count
        if self._unstored <= MAX_UNSTORED_LINES // 2 and not connection.transport.is_reading():
            connection.transport.resume_reading()
