"""What a keeper sends on its connection: together where it may wait, and never held back for long."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from trial_runner import protocol
from trial_runner.keeper.serving.listener import LATE_S, Connection
from trial_runner.loop import Loop

pytestmark = pytest.mark.unit


class Line:
    """Both ends of a connection, whose loop is turned by hand."""

    def __init__(self) -> None:
        def fail(error: Exception) -> None:
            raise error

        self.loop = Loop(fail)
        ours, self.peer = socket.socketpair()
        self.peer.settimeout(0)
        self.connection = Connection(self.loop, ours)

    def received(self) -> list[dict[str, Any]]:
        """What one read of the peer finds."""
        try:
            return protocol.Decoder().feed(self.peer.recv(65536))
        except BlockingIOError:
            return []


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    with line.peer:
        yield line
        line.connection.close("the test is over")


def test_delayed_message_is_sent_with_next_in_order(line: Line) -> None:
    line.connection.send_late(lambda: {"id": 1})
    assert line.received() == []
    line.connection.send({"id": 2})
    line.loop.run_turn()
    assert line.received() == [{"id": 1}, {"id": 2}]


def test_delayed_message_is_sent_alone_after_a_moment(line: Line) -> None:
    line.connection.send_late(lambda: {"id": 1})
    while not (found := line.received()):
        line.loop.run_turn()
    assert found == [{"id": 1}]


def test_delayed_message_is_created_when_sent(line: Line) -> None:
    number = 1
    line.connection.send_late(lambda: {"id": number})
    number = 2
    line.connection.send({"id": 3})
    line.loop.run_turn()
    assert line.received() == [{"id": 2}, {"id": 3}]


def test_another_one_waits_for_its_own_moment(line: Line) -> None:
    line.connection.send_late(lambda: {"id": 1})
    line.connection.send({"id": 2})
    line.loop.run_turn()
    line.received()
    line.connection.send_late(lambda: {"id": 3})
    while not (found := line.received()):
        line.loop.run_turn()
    assert found == [{"id": 3}]


def test_nothing_is_sent_late_on_a_closed_connection(line: Line) -> None:
    line.connection.send_late(lambda: {"id": 1})
    line.connection.close("it is over")
    line.connection.send_late(lambda: {"id": 2})
    line.loop.call_later(2 * LATE_S, line.loop.stop)
    line.loop.run()
    assert line.received() == []
