"""One process started: a shell in a session of its own.

`os.posix_spawn` costs half of what `subprocess` does, and is there since Python 3.8; before, the latter stands in.
"""

import os
import signal
from typing import Dict, List, NamedTuple

_SHELL = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")
_HAS_POSIX_SPAWN = hasattr(os, "posix_spawn")
#: Python ignores these, and a program would inherit that.
_TO_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ)


class Streams(NamedTuple):
    """Descriptors that become 0, 1 and 2; each is above 2 and closes on exec."""

    stdin: int
    stdout: int
    stderr: int


def launch(command: str, directory: str, environment: Dict[str, str], streams: Streams) -> int:
    """The pid of a shell that runs the command; the caller reaps it. Raises OSError, ValueError for illegal text."""
    arguments = [_SHELL, "-c", command]
    if _HAS_POSIX_SPAWN:
        return _posix_spawn(arguments, directory, environment, streams)
    return _popen(arguments, directory, environment, streams)


def _posix_spawn(arguments: List[str], directory: str, environment: Dict[str, str], streams: Streams) -> int:
    spawn = getattr(os, "posix_spawn")  # noqa: B009 - newer than the oldest Python this must read well for
    moves = [(getattr(os, "POSIX_SPAWN_DUP2"), source, target) for target, source in enumerate(streams)]  # noqa: B009
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    # It takes no working directory. There is one thread, so nobody sees that it changes meanwhile.
    try:
        os.chdir(directory)
        return int(spawn(_SHELL, arguments, environment, file_actions=moves, setsid=True, setsigdef=_TO_DEFAULT))
    finally:
        os.fchdir(before)
        os.close(before)


def _popen(arguments: List[str], directory: str, environment: Dict[str, str], streams: Streams) -> int:
    import subprocess  # costs memory where it is not needed

    process = subprocess.Popen(
        arguments,
        cwd=directory,
        env=environment,
        stdin=streams.stdin,
        stdout=streams.stdout,
        stderr=streams.stderr,
        start_new_session=True,
    )
    # It is reaped elsewhere; without this `subprocess` would look after it at every later start.
    process.returncode = 0
    return process.pid
