"""The lock file of a keeper's directory: the serving process, its socket and its machine."""

import fcntl
import os
from contextlib import suppress
from typing import NamedTuple, Optional

from trial_runner.wire.descriptors import Descriptor, try_lock

NAME = "keeper.lock"
_MOST_BYTES = 4096


class Holder(NamedTuple):
    """A keeper that serves a directory."""

    #: On its machine; 0: not written yet.
    pid: int
    #: The path of its socket; empty: not written yet.
    socket: str
    #: The name of its machine; empty: written by an old version.
    host: str


def write(lock: int, socket_path: str) -> None:
    """Writes this process into the file, which it has locked."""
    os.ftruncate(lock, 0)
    # a client with another environment would search the socket elsewhere; one on another machine cannot use it
    text = "{}\n{}\n{}\n".format(os.getpid(), socket_path, os.uname().nodename)
    os.pwrite(lock, text.encode("utf-8", "surrogateescape"), 0)


def read(lock: int) -> Holder:
    pid, socket_path, host, *_ = [*os.pread(lock, _MOST_BYTES, 0).split(b"\n"), b"", b""]
    texts = (text.decode("utf-8", "surrogateescape") for text in (socket_path, host))
    return Holder(int(pid) if pid.isdigit() else 0, *texts)


def holder(directory: str) -> Optional[Holder]:
    """None: no keeper serves the directory."""
    with suppress(FileNotFoundError), Descriptor(os.open(os.path.join(directory, NAME), os.O_RDONLY)) as lock:
        return None if try_lock(lock, fcntl.LOCK_SH) else read(lock)
    return None


def is_keeper(pid: int, directory: str) -> bool:
    """Whether a process of this machine is a keeper of the directory: the pid in the file may be reused."""
    try:
        with open("/proc/{}/cmdline".format(pid), "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return False
    return b"serve" in words and os.fsencode(directory) in words
