"""Reserves for a daemon that runs out of file descriptors, or of space on the data directory's disk."""

from __future__ import annotations

import os
import resource
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Protocol

#: File descriptors; an open experiment takes about ten. Keeper, tuners and jobs inherit the limit, and some programs
#: loop over all numbers below it, so it is not the million that some systems allow.
WANTED = 8192
#: Share of the file descriptors for TCP connections without a token: of all ports together, of one port.
_MOST_CONNECTIONS, _MOST_OF_PORT = 1 / 2, 1 / 4
#: Connections of one attempt's containers that are never ended.
_MOST_OF_RUNNER = 64


class Stranger(Protocol):
    """A connection that has not sent a token."""

    def give_way(self) -> None:
        """End the connection."""


class Strangers:
    """TCP connections that have not sent a token, by port, the longest silent one first.

    Above a limit, that one is ended, so that new clients can send their tokens. Connections with a token, and those to
    the control socket, do not count.
    """

    def __init__(self, files: int | None = None) -> None:
        """`files`: limit of open files; None: the process's current limit."""
        files = files or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        files = min(files, WANTED) if files != resource.RLIM_INFINITY else WANTED
        self._most = int(files * _MOST_CONNECTIONS)
        self._most_of_port = int(files * _MOST_OF_PORT)
        self._admitted: Counter[str] = Counter()
        self._by_port: defaultdict[int, dict[Stranger, None]] = defaultdict(dict)

    def enter(self, port: int, stranger: Stranger) -> bool:
        """Count a new connection to `port`, which must `leave` later; False: another one was ended for it."""
        of_port = self._by_port[port]
        of_port[stranger] = None
        if len(of_port) <= self._most_of_port:
            if sum(map(len, self._by_port.values())) <= self._most:
                return True
            of_port = max(self._by_port.values(), key=len)
        oldest = next(iter(of_port))
        del of_port[oldest]
        oldest.give_way()
        return False

    def hear(self, port: int, stranger: Stranger) -> None:
        """Note that the connection has sent data."""
        of_port = self._by_port[port]
        if of_port.pop(stranger, self) is None:  # else it was ended
            of_port[stranger] = None

    def admit(self, client: str) -> bool:
        """Count a connection of a client with a token, which must be dismissed later.

        False: the client has too many, and this one stays a stranger. `client`: a trial runner's job; empty: the
        service's clients.
        """
        if self._admitted[client] >= (_MOST_OF_RUNNER if client else self._most_of_port):
            return False
        self._admitted[client] += 1
        return True

    def dismiss(self, client: str) -> None:
        self._admitted[client] -= 1
        if not self._admitted[client]:
            del self._admitted[client]

    def leave(self, port: int, stranger: Stranger) -> None:
        """Idempotent."""
        self._by_port[port].pop(stranger, None)


def fill_standard_streams() -> None:
    """Open /dev/null for closed descriptors 0, 1 and 2; else our files would get them and pass them to children."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number


def allow_many() -> None:
    """Raise the soft limit of open files, usually 1024, to `WANTED`; a higher one is kept."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


RESERVE_NAME = "reserve"
#: Bytes: enough for SQLite's -shm and -wal files of a quiet index, and the daemon's small files.
_SIZE = 512 * 1024


def keep_room(data_directory: Path) -> None:
    """Create the file that reserves disk space, unless it exists or the disk is full."""
    path = data_directory / RESERVE_NAME
    with suppress(OSError):  # it exists, or the disk is full
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, _SIZE)
        except OSError:
            path.unlink()
        finally:
            os.close(file)


def spend_room(data_directory: Path) -> bool:
    """Free the reserved space; return whether there was any."""
    try:
        (data_directory / RESERVE_NAME).unlink()
    except OSError:
        return False
    return True
