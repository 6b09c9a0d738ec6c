"""The keeper's client against a keeper's socket that is played in this process."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sqlite3
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from nni_manager.domain.errors import PlatformUnavailable, SubmitRejected
from nni_manager.machines.keeper import client, connection
from nni_manager.machines.keeper.client import Keeper
from trial_runner import protocol

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]

Message = dict[str, Any]


class Peer(asyncio.Protocol):
    """The keeper's end of one connection. Greets by itself."""

    transport: asyncio.Transport

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._decoder = protocol.Decoder()
        self.requests: asyncio.Queue[Message] = asyncio.Queue()
        self.hellos: asyncio.Queue[Message] = asyncio.Queue()
        self.is_over = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._listener.welcome(self)

    def data_received(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            if message["verb"] == "hello":
                self.greet(message)
            else:
                self.requests.put_nowait(message)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_over.set()

    def greet(self, hello: Message) -> None:
        self.hellos.put_nowait(hello)
        usual = {"result": {"pid": 1, "version": protocol.VERSION}}
        greeting = self._listener.greetings.pop(0) if self._listener.greetings else usual
        self.send({"id": hello["id"], **greeting})

    async def answer(self, **content: Any) -> Message:
        """Answers the next request, and tells it."""
        request = await self.requests.get()
        self.send({"id": request["id"], **content})
        return request

    def lines(self, owner: str, start: int, count: int = 1) -> None:
        lines = {"event": "lines", "owner": owner, "name": "job", "outbox": "outbox/main.jsonl", "lines": ["1"] * count}
        self.send({**lines, "start": start, "end": start + 2 * count})

    def send(self, message: Message) -> None:
        self.send_bytes(protocol.encode(message))

    def send_bytes(self, data: bytes) -> None:
        self.transport.write(data)

    def hang_up(self) -> None:
        self.transport.close()


class Listener:
    """The keeper's socket."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()
        self._all: list[Peer] = []
        self._server: asyncio.Server
        #: Odd answers to the next greetings.
        self.greetings: list[Message] = []

    async def open(self) -> None:
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: Peer(self), self._path)

    async def close(self) -> None:
        self._server.close()
        await _few_turns()  # of the accepting side
        for peer in self._all:
            peer.hang_up()
        await asyncio.gather(*(peer.is_over.wait() for peer in self._all))

    async def connect(self, make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        transport, _ = await asyncio.get_running_loop().create_unix_connection(make_protocol, self._path)
        return transport

    async def peer(self) -> Peer:
        """Of the next connection that is made."""
        return await self._peers.get()

    @property
    def connections(self) -> int:
        return len(self._all)

    def welcome(self, peer: Peer) -> None:
        self._all.append(peer)
        self._peers.put_nowait(peer)


class Owner:
    """A listener that remembers; `store` is what it does with lines."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self.store: Callable[[], Awaitable[object]] = _at_once

    async def on_connected(self) -> None:
        self.events.put_nowait(("connected",))

    def on_lines(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> Awaitable[object]:
        self.events.put_nowait(("lines", job_name, outbox, start, end, lines))
        return self.store()

    def on_ended(self, job_name: str, job: Message) -> None:
        self.events.put_nowait(("ended", job_name, job))

    def on_disconnected(self) -> None:
        self.events.put_nowait(("disconnected",))

    async def hears(self, *kinds: str) -> list[tuple[Any, ...]]:
        """The next events, which must be of these kinds."""
        events = [await self.events.get() for _ in kinds]
        assert [event[0] for event in events] == list(kinds)
        return events

    def has_heard_nothing(self) -> bool:
        return self.events.empty()


async def _at_once() -> None:
    pass


@pytest.fixture
async def listener(tmp_path: Path) -> AsyncIterator[Listener]:
    listener = Listener(tmp_path / "keeper.sock")
    await listener.open()
    yield listener
    await listener.close()


@asynccontextmanager
async def at_work(keeper: Keeper) -> AsyncIterator[Keeper]:
    run = asyncio.create_task(keeper.run(), name="keeper")
    try:
        yield keeper
        assert not run.done(), run
    finally:
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


@pytest.fixture
async def keeper(listener: Listener) -> AsyncIterator[Keeper]:
    async with at_work(Keeper(listener.connect)) as keeper:
        yield keeper


@pytest.fixture
def brief_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of connections that are made after this."""
    monkeypatch.setattr(connection, "SILENCE_S", 0.02)


@pytest.fixture
def brief_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """With questions that are asked after this."""
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.5)


@pytest.fixture
async def owner(keeper: Keeper) -> Owner:
    """Listens as ``exp``."""
    owner = Owner()
    await keeper.listen("exp", owner)
    await owner.hears("connected")
    return owner


@pytest.fixture
async def peer(owner: Owner, listener: Listener) -> Peer:
    """Of the first connection."""
    return await listener.peer()


# ---------------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize("greeting", [{"pid": 7, "version": "0.0.9"}, {"pid": 7, "version": "99.0"}, {"pid": 7}])
async def test_keeper_of_other_version_is_not_used(keeper: Keeper, listener: Listener, greeting: Message) -> None:
    """Whatever it would be asked, it might take for something else."""
    listener.greetings.append({"result": greeting})
    owner = Owner()
    await keeper.listen("exp", owner)
    stranger = await listener.peer()
    await stranger.is_over.wait()
    assert f"(process 7) is version {greeting.get('version')}, this daemon is {protocol.VERSION}" in keeper.trouble
    assert stranger.requests.empty()
    await owner.hears("disconnected", "connected")
    assert keeper.trouble == ""


async def test_a_keeper_of_a_patch_release_is_fine(keeper: Keeper, listener: Listener) -> None:
    listener.greetings.append({"result": {"pid": 7, "version": ".".join([*protocol.VERSION.split(".")[:2], "99"])}})
    owner = Owner()
    await keeper.listen("exp", owner)
    await owner.hears("connected")


# ---------------------------------------------------------------------------------------------- requests


async def test_a_request_is_answered(keeper: Keeper, peer: Peer) -> None:
    request = asyncio.create_task(keeper.request("signal", name="job", grace_s=1))
    asked = await peer.answer(result={"x": 1})
    assert (asked["verb"], asked["name"], asked["grace_s"]) == ("signal", "job", 1)
    assert await request == {"x": 1}


async def test_answers_come_in_any_order(keeper: Keeper, peer: Peer) -> None:
    requests = [asyncio.create_task(keeper.request("list", number=number)) for number in range(3)]
    asked = [await peer.requests.get() for _ in requests]
    for message in reversed(asked):
        peer.send({"id": message["id"], "result": message["number"]})
    assert await asyncio.gather(*requests) == [0, 1, 2]


@pytest.mark.parametrize("kind", [protocol.REJECTED, protocol.INVALID])
async def test_a_request_that_will_never_work_is_rejected(keeper: Keeper, peer: Peer, kind: str) -> None:
    request = asyncio.create_task(keeper.request("spawn"))
    await peer.answer(error={"kind": kind, "message": "cannot find folder"})
    with pytest.raises(SubmitRejected, match="cannot find folder"):
        await request


async def test_refusal_means_no_effect(keeper: Keeper, peer: Peer) -> None:
    request = asyncio.create_task(keeper.request("spawn"))
    await peer.answer(error={"kind": protocol.UNAVAILABLE, "message": "the disk is full"})
    with pytest.raises(PlatformUnavailable, match="the disk is full") as refused:
        await request
    assert refused.value.refused


async def test_silent_keeper_is_given_up(
    keeper: Keeper, peer: Peer, owner: Owner, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.05)
    request = asyncio.create_task(keeper.request("spawn"))
    await peer.requests.get()
    with pytest.raises(PlatformUnavailable, match=r"no answer for 0\.05 s") as silent:
        await request
    assert not silent.value.refused
    await owner.hears("disconnected", "connected")
    await peer.is_over.wait()
    again = asyncio.create_task(keeper.request("spawn"))
    await (await listener.peer()).answer(result="done")
    assert await again == "done"


async def test_busy_keeper_is_not_given_up(keeper: Keeper, peer: Peer, owner: Owner) -> None:
    """As that of a folder with 600,000 files to be removed."""
    request = asyncio.create_task(keeper.request("remove", patience_s=1.0))
    asked = await peer.requests.get()
    begun_s = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < begun_s + 2.5:
        peer.send({"event": "of a newer one"})
        await asyncio.sleep(0.05)
    assert not request.done()
    peer.send({"id": asked["id"], "result": {}})
    assert await request == {} and owner.has_heard_nothing()


async def test_unread_answers_do_not_count_as_silence_of_a_keeper(
    keeper: Keeper, peer: Peer, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.05)
    monkeypatch.setattr(client, "MAX_UNSTORED_LINES", 2)
    can_store = asyncio.Event()
    owner.store = can_store.wait
    peer.lines("exp", 0, count=3)
    await owner.hears("lines")
    request = asyncio.create_task(keeper.request("list"))
    await peer.answer(result=[])
    await asyncio.sleep(0.2)
    assert not request.done()
    can_store.set()
    assert await request == []
    assert owner.has_heard_nothing()


@pytest.mark.usefixtures("brief_silence", "brief_patience")
async def test_hanging_keeper_is_given_up_without_requests(
    owner: Owner, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    peer.transport.pause_reading()
    await owner.hears("disconnected", "connected")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "keeper local: no answer for 0.5 s, it hangs or was stopped"
    ]


@pytest.mark.usefixtures("brief_silence")
@pytest.mark.parametrize("kind", [protocol.UNAVAILABLE, protocol.INVALID])
async def test_a_keeper_that_answers_when_it_was_silent_is_kept(
    keeper: Keeper, owner: Owner, peer: Peer, listener: Listener, kind: str
) -> None:
    listener.greetings.append({"error": {"kind": kind, "message": "not today"}})
    for _ in range(4):  # the first comes with the connection
        await peer.hellos.get()
    request = asyncio.create_task(keeper.request("list"))
    await peer.answer(result="still here")
    assert await request == "still here"
    assert owner.has_heard_nothing() and listener.connections == 1


async def test_request_result_is_unknown_after_broken_connection(keeper: Keeper, peer: Peer) -> None:
    requests = [asyncio.create_task(keeper.request("spawn", name=name)) for name in "ab"]
    await peer.requests.get()
    peer.hang_up()
    for request in requests:
        with pytest.raises(PlatformUnavailable, match="the connection to the local keeper broke") as broken:
            await request
        assert not broken.value.refused


async def test_without_a_connection_a_request_says_why() -> None:
    async def refuse(_make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        raise ConnectionRefusedError("nobody is at home")

    async with at_work(Keeper(refuse, name="far")) as keeper:
        with pytest.raises(PlatformUnavailable, match="the far keeper is unreachable: it has no listener"):
            await keeper.request("list")
        await keeper.listen("exp", Owner())
        await _few_turns()
        with pytest.raises(PlatformUnavailable, match="nobody is at home"):
            await keeper.request("list")


async def test_a_request_waits_for_a_connection_that_is_being_made(listener: Listener) -> None:
    go_on = asyncio.Event()

    async def slowly(make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        await go_on.wait()
        return await listener.connect(make_protocol)

    async with at_work(Keeper(slowly)) as keeper:
        await keeper.listen("exp", Owner())
        request = asyncio.create_task(keeper.request("list"))
        await _few_turns()
        assert not request.done()
        go_on.set()
        await (await listener.peer()).answer(result="answered")
        assert await request == "answered"


async def test_a_request_does_not_outwait_the_last_listener() -> None:
    async def never(_make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async with at_work(Keeper(never)) as keeper:
        await keeper.listen("exp", Owner())
        request = asyncio.create_task(keeper.request("list"))
        await _few_turns()
        keeper.leave("exp")
        with pytest.raises(PlatformUnavailable, match="it has no listener"):
            await request


@pytest.mark.looptime
async def test_a_request_does_not_wait_for_ever_for_a_connection() -> None:
    async def never(_make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async with at_work(Keeper(never)) as keeper:
        await keeper.listen("exp", Owner())
        with pytest.raises(PlatformUnavailable, match="no answer"):
            await keeper.request("list")


async def test_request_on_a_lost_connection_delays_no_other_listener(keeper: Keeper, listener: Listener) -> None:
    class Slow(Owner):
        """Asks when the connection it was told of is gone."""

        async def on_connected(self) -> None:
            await super().on_connected()
            if listener.connections == 1:
                (await listener.peer()).hang_up()
                await self.hears("connected", "disconnected")
                with pytest.raises(PlatformUnavailable, match="the connection broke"):
                    await keeper.request("follow")

    owner = Slow()
    await keeper.listen("exp", owner)
    await owner.hears("connected")
    assert listener.connections == 2


async def test_a_request_given_up_disturbs_no_other(keeper: Keeper, peer: Peer) -> None:
    first, second = (asyncio.create_task(keeper.request("list")) for _ in range(2))
    asked = [await peer.requests.get() for _ in range(2)]
    first.cancel()
    for message in asked:
        peer.send({"id": message["id"], "result": message["id"]})
    assert await second == asked[1]["id"]


# ---------------------------------------------------------------------------------------------- connections


@pytest.mark.looptime
async def test_waits_between_tries_grow(caplog: pytest.LogCaptureFixture) -> None:
    loop, tries = asyncio.get_running_loop(), []
    enough = asyncio.Event()

    async def refuse(_make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        tries.append(loop.time())
        if len(tries) == 8:
            enough.set()
        raise ConnectionRefusedError("nobody is at home")

    async with at_work(Keeper(refuse)) as keeper:
        await keeper.listen("exp", Owner())
        await enough.wait()
        waits = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert waits == pytest.approx([0.02, 0.1, 0.3, 1, 3, 3, 3], abs=0.01)
    assert [record.getMessage() for record in caplog.records] == ["keeper local: nobody is at home"]  # once


async def test_no_connection_before_the_first_listener(listener: Listener, keeper: Keeper) -> None:
    await asyncio.sleep(0)
    assert listener.connections == 0
    await keeper.listen("exp", Owner())
    await listener.peer()


async def test_a_lost_connection_is_made_again(keeper: Keeper, owner: Owner, peer: Peer, listener: Listener) -> None:
    peer.hang_up()
    await owner.hears("disconnected", "connected")
    again = await listener.peer()
    request = asyncio.create_task(keeper.request("list"))
    await again.answer(result="answered")
    assert await request == "answered"


async def test_a_connection_that_never_lasts_is_not_made_again_at_once(
    owner: Owner, peer: Peer, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)  # the clock
    for _ in range(4):
        peer.hang_up()
        await owner.hears("disconnected", "connected")
        peer = await listener.peer()
    assert waits == [0.02, 0.1, 0.3, 1.0]


async def test_keeper_that_had_answered_is_replaced_at_once(
    owner: Owner, peer: Peer, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends of jobs are not seen without a keeper: the gaps must not grow with the number of deaths."""
    monkeypatch.setattr(client, "_WELL_STARTED_S", 0.0)
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)  # the clock
    for _ in range(6):
        peer.hang_up()
        await owner.hears("disconnected", "connected")
        peer = await listener.peer()
    assert waits == []


async def test_repeatedly_closed_connection_waits_before_reconnect(
    owner: Owner, peer: Peer, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_WELL_STARTED_S", 0.0)
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)  # the clock
    for _ in range(3):
        peer.send({"neither": "an answer nor an event"})
        await owner.hears("disconnected", "connected")
        peer = await listener.peer()
    assert waits == [0.02, 0.1, 0.3]


@pytest.mark.parametrize("greeting", [{"error": {"kind": protocol.INVALID, "message": "not today"}}, {"result": None}])
async def test_odd_hello_answer_closes_the_connection_only(
    keeper: Keeper, listener: Listener, greeting: Message
) -> None:
    listener.greetings.append(greeting)
    owner = Owner()
    await keeper.listen("exp", owner)
    await owner.hears("disconnected", "connected")


async def test_the_last_to_leave_closes_the_connection(
    keeper: Keeper, owner: Owner, peer: Peer, listener: Listener
) -> None:
    other = Owner()
    await keeper.listen("other", other)
    await other.hears("connected")
    keeper.leave("exp")
    keeper.leave("exp")
    peer.lines("exp", 0)
    peer.lines("other", 0)
    await other.hears("lines")
    assert not peer.is_over.is_set()
    request = asyncio.create_task(keeper.request("list"))
    await peer.requests.get()
    keeper.leave("other")
    await peer.is_over.wait()
    with pytest.raises(PlatformUnavailable, match="no experiment needs it"):
        await request
    assert owner.has_heard_nothing()
    await keeper.listen("exp", owner)
    await owner.hears("connected")
    assert listener.connections == 2


async def test_leaving_before_the_connection_is_made_leaves_none(listener: Listener) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(make_protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        begun.set()
        await go_on.wait()
        return await listener.connect(make_protocol)

    async with at_work(Keeper(slowly)) as keeper:
        await keeper.listen("exp", Owner())
        await begun.wait()
        keeper.leave("exp")
        go_on.set()
        await (await listener.peer()).is_over.wait()


async def test_a_stopping_daemon_closes_the_connection(listener: Listener) -> None:
    owner = Owner()
    async with at_work(Keeper(listener.connect)) as keeper:
        await keeper.listen("exp", owner)
        await owner.hears("connected")
        request = asyncio.create_task(keeper.request("list"))
        await asyncio.sleep(0)
    await (await listener.peer()).is_over.wait()
    with pytest.raises(PlatformUnavailable, match="the daemon is stopping"):
        await request


# ---------------------------------------------------------------------------------------------- events


async def test_events_go_to_the_owner_of_the_job(keeper: Keeper, owner: Owner, peer: Peer) -> None:
    other, job = Owner(), {"state": protocol.ENDED, "exit_code": 0}
    await keeper.listen("other", other)
    peer.lines("exp", 0)
    peer.lines("nobody", 0)
    peer.send({"event": "ended", "owner": "nobody", "name": "job", "job": job})
    peer.send({"event": "ended", "owner": "other", "name": "job-2", "job": job})
    peer.send({"event": "of a newer keeper"})
    peer.send({"event": "ended", "owner": "exp", "name": "job", "job": job})
    events = await owner.hears("lines", "ended")
    assert events == [("lines", "job", "outbox/main.jsonl", 0, 2, ["1"]), ("ended", "job", job)]
    assert await other.hears("connected", "ended") == [("connected",), ("ended", "job-2", job)]


async def test_every_owner_hears_of_a_broken_connection(keeper: Keeper, owner: Owner, peer: Peer) -> None:
    other = Owner()
    await keeper.listen("other", other)
    peer.hang_up()
    await other.hears("connected", "disconnected", "connected")
    await owner.hears("disconnected", "connected")


async def test_faulty_listener_does_not_affect_others(
    keeper: Keeper, owner: Owner, peer: Peer, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(Owner):
        async def on_connected(self) -> None:
            await super().on_connected()
            if self.events.qsize() > 1:
                raise sqlite3.OperationalError("disk I/O error")

    faulty, other = Faulty(), Owner()
    await keeper.listen("faulty", faulty)
    await keeper.listen("other", other)
    peer.hang_up()
    await other.hears("connected", "disconnected", "connected")
    await faulty.hears("connected", "disconnected", "connected")
    assert keeper.is_connected
    (barrier,) = [record for record in caplog.records if getattr(record, "action", "") == "barrier"]
    assert "faulty" in barrier.getMessage()
    assert barrier.exc_info is not None


async def test_unstored_lines_are_requested_on_a_new_connection(
    owner: Owner, peer: Peer, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise OSError("no space left")

    owner.store = fail
    peer.lines("exp", 0)
    await owner.hears("lines", "disconnected", "connected")
    owner.store = _at_once
    (await listener.peer()).lines("exp", 0)
    await owner.hears("lines")
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in errors] == ["results were not stored; reconnecting to receive them again"]


async def test_dropped_lines_of_a_leaving_owner_are_ignored(keeper: Keeper, owner: Owner, peer: Peer) -> None:
    other, failing = Owner(), asyncio.Event()

    async def fail() -> None:
        await failing.wait()
        raise OSError("closed")

    other.store = fail
    await keeper.listen("other", other)
    peer.lines("other", 0)
    await other.hears("connected", "lines")
    keeper.leave("other")
    failing.set()
    peer.lines("exp", 0)
    await owner.hears("lines")
    request = asyncio.create_task(keeper.request("list"))
    await peer.answer(result="still here")
    assert await request == "still here"
    assert owner.has_heard_nothing()


async def test_reading_pauses_while_too_many_lines_are_unstored(
    keeper: Keeper, owner: Owner, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_UNSTORED_LINES", 100)
    stores: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def hold() -> None:
        stored = asyncio.Event()
        stores.put_nowait(stored)
        await stored.wait()

    owner.store = hold
    peer.lines("exp", 0, 50)
    peer.lines("exp", 100, 60)
    await owner.hears("lines", "lines")
    peer.lines("exp", 220, 1)
    request = asyncio.create_task(keeper.request("list"))
    await peer.answer(result="late")
    await _few_turns()
    assert owner.has_heard_nothing() and not request.done()
    (await stores.get()).set()  # 60 lines are left: above half of the limit
    await _few_turns()
    assert owner.has_heard_nothing() and not request.done()
    (await stores.get()).set()
    await owner.hears("lines")
    assert await request == "late"


async def test_new_connection_starts_without_unstored_lines(
    owner: Owner, peer: Peer, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_UNSTORED_LINES", 100)
    gate = asyncio.Event()
    owner.store = gate.wait
    peer.lines("exp", 0, 99)
    await owner.hears("lines")
    peer.hang_up()
    await owner.hears("disconnected", "connected")
    again = await listener.peer()
    for start in (0, 2):
        again.lines("exp", start)
    await owner.hears("lines", "lines")
    gate.set()
    again.lines("exp", 4)
    await owner.hears("lines")


async def _few_turns() -> None:
    """Long enough for everything in the socket to be read, where it is read at all."""
    for _ in range(50):
        await asyncio.sleep(0)


# ---------------------------------------------------------------------------------------------- nonsense


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\0\0\0\2{]",
        b"\0\0\0\2\xff\xff",
        b"\0\0\0\2[]",
        b"\0\0\0\0017",
        b"\0\0\0\2{}",
        struct.pack(">I", protocol.MAX_FRAME + 1),
        b"HTTP/1.1 400 Bad Request\r\n",
        struct.pack(">I", 200_000) + b"[" * 200_000,
        protocol.encode({"event": "lines", "owner": "exp"}),
        protocol.encode({"event": "ended", "owner": "exp", "name": "job", "job": {}}),
        protocol.encode({"event": "ended", "owner": ["exp"], "name": "job", "job": {"state": "ENDED"}}),
        protocol.encode({"id": 1}),
        protocol.encode({"id": [], "result": 1}),
        protocol.encode({"id": 1, "error": "no"}),
    ],
    ids=range(14),
)
async def test_invalid_message_ends_the_connection_only(
    keeper: Keeper, owner: Owner, peer: Peer, listener: Listener, nonsense: bytes
) -> None:
    request = asyncio.create_task(keeper.request("spawn"))
    await peer.requests.get()
    peer.send_bytes(nonsense)
    with pytest.raises(PlatformUnavailable):
        await request
    await owner.hears("disconnected", "connected")
    (await listener.peer()).lines("exp", 0)
    await owner.hears("lines")


async def test_fragmented_message_is_assembled(owner: Owner, peer: Peer) -> None:
    message = {"event": "ended", "owner": "exp", "name": "jöb", "job": {"state": protocol.ENDED}}
    for byte in protocol.encode(message):
        peer.send_bytes(bytes([byte]))
        await asyncio.sleep(0)
    assert await owner.hears("ended") == [("ended", "jöb", message["job"])]


async def test_answer_to_a_cancelled_request_is_dropped(keeper: Keeper, owner: Owner, peer: Peer) -> None:
    peer.send({"id": 99, "result": 1})
    peer.send({"id": None, "error": {"kind": protocol.INVALID, "message": "A message is not JSON."}})
    peer.lines("exp", 0)
    await owner.hears("lines")
