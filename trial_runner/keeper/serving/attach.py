"""Bridges standard input and output to the keeper's socket; starts a keeper if none answers.

An SSH session runs this: the session may break and return, the keeper stays.
"""

import os
import select
import socket
import sys
import threading
import time
from typing import List, Optional

from trial_runner.keeper import lock_file
from trial_runner.launch import PROGRAM
from trial_runner.wire import shortage
from trial_runner.wire.foreign_files import write_all

_COPY_BYTES = 256 * 1024
#: Seconds for a keeper to start; it checks every job it finds before it listens.
_START_S = 30.0
#: Seconds to wait for a keeper that is ending, or recreating its socket.
_PAUSE_S = 0.05
#: Number of attempts; a keeper may end between two steps.
_ATTEMPTS = 20

#: Not `-m`: that searches the working directory first, where a user's file could shadow one of Python's modules.
_SERVE = "import sys; sys.path[0] = sys.argv.pop(1); from trial_runner.keeper.__main__ import main; sys.exit(main())"


def attach(directory: str, socket_path: str) -> int:
    """Returns an exit code when either side hangs up."""
    connected = _find(directory, socket_path)
    for _ in range(_ATTEMPTS):
        if connected is not None:
            break
        elsewhere = _elsewhere(directory)
        if elsewhere:
            print(elsewhere, file=sys.stderr)
            return 1
        if not _start(directory, socket_path):
            time.sleep(_PAUSE_S)
        connected = _find(directory, socket_path)
    if connected is None:
        print("No keeper answers at {}: see {}/keeper.log.".format(socket_path, directory), file=sys.stderr)
        return 1
    _bridge(connected)
    return 0


def serve_command(directory: str, socket_path: str, ready_fd: int) -> List[str]:
    """Starts the same program, from the same folder or archive, with the same interpreter."""
    arguments = ["serve", "--directory", directory, "--socket", socket_path, "--ready-fd", str(ready_fd)]
    return [sys.executable, "-c", _SERVE, PROGRAM, *arguments]


def _start(directory: str, socket_path: str) -> bool:
    """Whether a keeper reported that it listens."""
    import subprocess  # a large import, and most sessions find a keeper

    reader, writer = os.pipe()
    try:
        try:
            shortage.tried_again(
                lambda: subprocess.Popen(
                    serve_command(directory, socket_path, writer),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(writer,),
                    start_new_session=True,
                )
            )
        finally:
            os.close(writer)
        ready = select.select([reader], [], [], _START_S)[0]
        return bool(ready) and bool(os.read(reader, 64))
    finally:
        os.close(reader)


def _find(directory: str, socket_path: str) -> Optional[socket.socket]:
    """A connection to the running keeper; one started in another environment may listen elsewhere."""
    found = _connect(socket_path)
    if found is not None:
        return found
    holder = lock_file.holder(directory)
    found = _connect(holder.socket) if holder is not None and holder.socket else None
    if holder is not None and found is not None and _peer(found) != holder.pid:
        found.close()
        return None
    return found


def _elsewhere(directory: str) -> str:
    """The sentence about a keeper that runs on another machine with the same home folder; empty: there is none."""
    holder = lock_file.holder(directory)
    if holder is None or holder.host in ("", os.uname().nodename) or lock_file.is_keeper(holder.pid, directory):
        return ""
    return (
        "The keeper of {} runs on {}, which has the same home folder as {}: set `host` to that machine, not to a name"
        " of several.".format(directory, holder.host, os.uname().nodename)
    )


def _peer(sock: socket.socket) -> int:
    """The process that listens at the other end."""
    return int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder)


def _connect(socket_path: str) -> Optional[socket.socket]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(socket_path)
    except OSError:
        sock.close()
        return None
    return sock


def _bridge(sock: socket.socket) -> None:
    """Copies both ways, in two threads: with one thread, two full pipes could wait for each other."""
    threading.Thread(target=_copy_in, args=(sock,), daemon=True).start()
    try:
        data = sock.recv(_COPY_BYTES)
        while data:
            write_all(1, data)
            data = sock.recv(_COPY_BYTES)
    except OSError:
        pass  # the other side of standard output hung up, or the keeper was killed


def _copy_in(sock: socket.socket) -> None:
    try:
        data = os.read(0, _COPY_BYTES)
        while data:
            sock.sendall(data)
            data = os.read(0, _COPY_BYTES)
        # the client is gone, even if the keeper hangs
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the keeper hung up; the other thread sees it, too
