"""A process that represents a program of NNI's Python, which runs in a fork of the server.

Both have the same input, output, folder, environment and exit status. It forwards termination signals. A kill leaves a
fork, which `tests.live_daemon.end_all` finds by its environment.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from tests.fork_server.order import Order, own_limits, own_umask, send

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NUMBER = struct.Struct("q")


def main(server: str, python: str, before: Sequence[str]) -> NoReturn:
    """`before`: goes before the arguments of this process."""
    words = [*before, *sys.argv[1:]]
    program = _program(words)
    if program is None:
        os.execv(python, [python, *words])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as teller:
        teller.connect(server)
        send(teller, _order([python, *words], program), (0, 1, 2))
        pid = _told(teller)
        for number in _FORWARDED:
            signal.signal(number, lambda number, _: _pass_on(pid, number))
        _end_as(_told(teller))


def _program(words: Sequence[str]) -> list[str] | None:
    """A script, `-m` and a module, or `-c` and code; None: other options, or nothing to run."""
    if words[:1] and words[0] in ("-c", "-m"):
        return list(words[:2]) if len(words) > 1 else None
    return [words[0]] if words and not words[0].startswith("-") else None


def _order(command: list[str], program: list[str]) -> Order:
    return Order(
        command,
        program,
        directory=os.getcwd(),
        environment=dict(os.environ),
        descriptors=[0, 1, 2],
        limits=own_limits(),
        umask=own_umask(),
        session=False,
        group=-1,
        interrupts=False,
    )


def _told(teller: socket.socket) -> int:
    data = teller.recv(_NUMBER.size)
    assert data, "the server has ended"
    return int(_NUMBER.unpack(data)[0])


def _pass_on(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _end_as(status: int) -> NoReturn:
    """`status`: from `waitpid`."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)
