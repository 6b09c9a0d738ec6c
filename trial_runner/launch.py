"""Starts commands, and calls functions of the C library that Python lacks. Some Pythons have no `ctypes`."""

import errno
import os
import re
import signal
from contextlib import suppress
from typing import Dict, List, NamedTuple, Union

from trial_runner.wire.descriptors import Descriptor

try:
    import ctypes

    _libc = ctypes.CDLL(None, use_errno=True)
except (ImportError, OSError):  # a static build cannot load libraries
    _libc = None  # type: ignore[assignment]  # asked before each use


def libc_call(name: str, *arguments: Union[int, bytes]) -> int:
    """The C library's result. Raises OSError if it is negative, or if calling is impossible."""
    if _libc is None:
        raise OSError(errno.ENOSYS, "this Python has no ctypes")
    answer = int(getattr(_libc, name)(*arguments))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def overwrite_variable(name: bytes) -> None:
    """Overwrites a variable where `/proc` shows it: in the memory that the kernel initialized; Python has its own copy.
    Best effort."""
    if _libc is None:
        return
    _libc.getenv.restype = ctypes.c_void_p
    address = _libc.getenv(name)
    if address:
        ctypes.memset(address, ord("x"), len(ctypes.string_at(address)))


#: Where this package is found: a folder, or the archive that this runs from.
PROGRAM = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SHELL = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")
_HAS_POSIX_SPAWN = hasattr(os, "posix_spawn")
#: Programs would inherit that they are ignored: the first two by Python, the others if we were started in the
#: background.
_TO_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
#: Words and spaces: nothing for a shell to expand, quote, assign or connect.
_PLAIN = re.compile(r"[A-Za-z0-9_./-][A-Za-z0-9_./@%+:,-]*( +[A-Za-z0-9_./@%+:,=-]+)*")
#: Words that are built into bash.
_SHELL_WORDS = frozenset(
    ". : [ alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare dirs"
    " disown do done echo elif else enable esac eval exec exit export false fc fg fi for function getopts hash help"
    " history if in jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly return select set"
    " shift shopt source suspend test then time times trap true type typeset ulimit umask unalias unset until wait"
    " while".split()
)


class Streams(NamedTuple):
    """Descriptors that become 0, 1 and 2; each is above 2 and closes on exec."""

    stdin: int
    stdout: int
    stderr: int


def launch(command: str, directory: str, environment: Dict[str, str], streams: Streams) -> int:
    """The pid of the process that runs the command; the caller reaps it. Raises OSError; ValueError: illegal text."""
    start = _posix_spawn if _HAS_POSIX_SPAWN else _popen
    program = _plain_program(command, directory, environment)
    if program:
        # a shell may be able to run it, or has the message and the exit code
        with suppress(OSError):
            return start([program, *command.split()[1:]], directory, {**environment, "PWD": directory}, streams)
    return start([_SHELL, "-c", command], directory, environment, streams)


def _plain_program(command: str, directory: str, environment: Dict[str, str]) -> str:
    """The program of a command that needs no shell, whose start would cost most; otherwise empty."""
    if "BASH_ENV" in environment or not _PLAIN.fullmatch(command):
        return ""
    word = command.split()[0]
    if word in _SHELL_WORDS:
        return ""
    if "/" in word:
        path = os.path.join(directory, word)
        return path if os.path.isfile(path) and os.access(path, os.X_OK) else ""
    return _on_path(word, environment.get("PATH", ""))


def _on_path(word: str, path: str) -> str:
    """As `shutil.which`, whose import costs more than the start of the command; empty: left to the shell."""
    for folder in path.split(os.pathsep):
        found = os.path.join(folder, word)
        if os.access(found, os.X_OK) and os.path.isfile(found):
            return found if os.path.isabs(found) else ""
    return ""


def _posix_spawn(arguments: List[str], directory: str, environment: Dict[str, str], streams: Streams) -> int:
    spawn = getattr(os, "posix_spawn")  # noqa: B009 - newer than the oldest Python this must read well for
    moves = [(getattr(os, "POSIX_SPAWN_DUP2"), source, target) for target, source in enumerate(streams)]  # noqa: B009 - as above
    with Descriptor(os.open(".", os.O_RDONLY | os.O_DIRECTORY)) as before:
        # it takes no working directory; there is one thread, so nothing else sees the change
        try:
            os.chdir(directory)
            signals = {"setsigdef": _TO_DEFAULT, "setsigmask": ()}  # unblocks what our own starter blocked
            return int(spawn(arguments[0], arguments, environment, file_actions=moves, setsid=True, **signals))
        finally:
            os.fchdir(before)


def _popen(arguments: List[str], directory: str, environment: Dict[str, str], streams: Streams) -> int:
    import subprocess  # costs memory, so only if needed

    process = subprocess.Popen(
        arguments,
        cwd=directory,
        env=environment,
        stdin=streams.stdin,
        stdout=streams.stdout,
        stderr=streams.stderr,
        start_new_session=True,
    )
    # it is reaped elsewhere; otherwise `subprocess` would check it at every later start
    process.returncode = 0
    return process.pid
