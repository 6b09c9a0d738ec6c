"""Reserves of a daemon that runs out: file descriptors, and room on the data directory's disk."""

from __future__ import annotations

import os
import resource
from collections import Counter
from contextlib import suppress
from pathlib import Path

#: Each experiment at work takes about ten. Keeper, tuners and jobs inherit the limit, and there are programs that go
#: through all numbers below it, so it is not the million that some systems allow.
WANTED = 8192
#: Of those there may be, the part that connections from elsewhere may take, all together and by one port. The rest is
#: for experiments, their databases and tuners.
_MOST_CONNECTIONS, _MOST_OF_PORT = 1 / 2, 1 / 4


class Connections:
    """The number of clients that are connected over TCP, by port. Sockets of this machine's user are not counted."""

    def __init__(self, files: int | None = None) -> None:
        """`files`: how many this process may have open; by default what it may at the moment."""
        files = files or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        files = min(files, WANTED) if files != resource.RLIM_INFINITY else WANTED
        self._most = int(files * _MOST_CONNECTIONS)
        self._most_of_port = int(files * _MOST_OF_PORT)
        self._open: Counter[int] = Counter()

    def enter(self, port: int) -> bool:
        """Whether one more may come in by `port`; then it must `leave`."""
        if self._open[port] >= self._most_of_port or self._open.total() >= self._most:
            return False
        self._open[port] += 1
        return True

    def leave(self, port: int) -> None:
        self._open[port] -= 1


def fill_standard_streams() -> None:
    """Opens those of descriptors 0, 1 and 2 that are closed: files of ours would get them, and go to children."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free


def allow_many() -> None:
    """Most systems let a process have 1024, and more if it asks. What is more already stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


RESERVE_NAME = "reserve"
#: Bytes: what SQLite keeps in memory files and its log of an index that changes little, and the daemon's small files.
_SIZE = 512 * 1024


def keep_room(data_directory: Path) -> None:
    """Makes it unless it is there, or there is no room for it."""
    path = data_directory / RESERVE_NAME
    with suppress(OSError):  # it is there already, for instance
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, _SIZE)
        except OSError:
            path.unlink()
        finally:
            os.close(file)


def spend_room(data_directory: Path) -> bool:
    """Gives the room back; whether there was some."""
    try:
        (data_directory / RESERVE_NAME).unlink()
    except OSError:
        return False
    return True
