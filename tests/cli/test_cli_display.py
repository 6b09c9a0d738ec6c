"""The line on a terminal and the lines on a pipe."""

from __future__ import annotations

import io

import pytest
from fake_manager import state

from nni_manager.programs.progress import LineDisplay, Progress, TerminalDisplay, display_for, read

pytestmark = pytest.mark.unit


def progress(done: int) -> Progress:
    return read(state(counts={"SUCCEEDED": done}, maxTrialNumber=100))


def test_pipe_gets_a_line_at_each_tenth() -> None:
    stream = io.StringIO()
    display = LineDisplay(stream)
    for done in range(35):
        display.show(progress(done))
    display.close(progress(35))
    assert [line.split(" ")[0] for line in stream.getvalue().splitlines()] == [
        "0/100",
        "10/100",
        "20/100",
        "30/100",
        "35/100",
    ]


def test_terminal_is_redrawn_five_times_a_second_at_most() -> None:
    stream, now_s = io.StringIO(), 0.0
    display = TerminalDisplay(stream, clock=lambda: now_s)
    for done in range(100):
        display.show(progress(done))
        now_s += 0.01  # so the hundred changes come within one second
    assert stream.getvalue().count("\r") == 5


def test_terminal_delays_early_states_and_repeats_none() -> None:
    stream, now_s = io.StringIO(), 0.0
    display = TerminalDisplay(stream, clock=lambda: now_s)
    display.show(progress(1))
    display.show(progress(2))
    assert "2/100" not in stream.getvalue()
    for _ in range(3):
        now_s += 0.25
        display.show(progress(2))
    assert stream.getvalue().count("2/100") == 1


def test_terminal_keeps_notes_and_the_last_line() -> None:
    stream = io.StringIO()
    display = TerminalDisplay(stream, clock=lambda: 0.0)
    display.show(progress(1))
    display.note("Waiting: the disk is full")
    display.close(progress(2))
    assert stream.getvalue().endswith(
        "\r\x1b[KWaiting: the disk is full\n\r\x1b[K2/100 done, 0 running, 0 failed; 1 min 0 s, about 49 min 0 s left\n"
    )


def test_pipe_gets_lines() -> None:
    assert isinstance(display_for(io.StringIO()), LineDisplay)
