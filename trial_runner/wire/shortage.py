"""Shortages of processes, memory or descriptors: the start of a process that fails by one is tried again."""

import errno
import time
from typing import Callable, TypeVar

from trial_runner.wire.backoff import Backoff

#: Errors of a start that pass without a change of the command.
ERRORS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
#: The error number of uvloop when it cannot open the pair of sockets of a child.
_OF_UVLOOP = -1
#: Seconds between two tries; the last one repeats.
WAITS_S = (0.1, 0.2, 0.5, 1.0, 2.0)
#: Seconds for which a command or a caller that waits tries.
PATIENCE_S = 15.0

T = TypeVar("T")


#: Python's message where no thread can be started.
_NO_THREAD = "can't start new thread"


def is_shortage(error: BaseException) -> bool:
    if isinstance(error, RuntimeError):
        return str(error) == _NO_THREAD
    return isinstance(error, OSError) and (error.errno in ERRORS or error.errno == _OF_UVLOOP)


#: What processes write that a shortage ends: Python, its threads, and OpenBLAS.
_WORDS = (_NO_THREAD, "pthread_create failed", *("[Errno {}]".format(number) for number in sorted(ERRORS)))


def is_named_in(text: str) -> bool:
    """Whether the last words of a process name a shortage."""
    return any(words in text for words in _WORDS)


def tried_again(start: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """The result of `start`, which is called again while a shortage prevents it. Blocks for up to `patience_s` seconds,
    then raises the last error; other errors are raised at once."""
    backoff, deadline = Backoff(WAITS_S), time.monotonic() + patience_s
    while True:
        try:
            return start()
        except OSError as error:
            wait_s = backoff.next_wait()
            if not is_shortage(error) or time.monotonic() + wait_s > deadline:
                raise
        time.sleep(wait_s)
