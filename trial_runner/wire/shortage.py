"""Shortages of processes, memory or descriptors: a failed start of a process is repeated."""

import errno
import time
from typing import Callable, TypeVar

from trial_runner.wire.backoff import Backoff

#: Errors of a start that pass without a change of the command.
ERRORS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
#: uvloop's error number if it cannot open the pair of sockets of a child.
OF_UVLOOP = -1
#: Seconds between two attempts; the last value repeats.
WAITS_S = (0.1, 0.2, 0.5, 1.0, 2.0)
#: Seconds of attempts for a command or a waiting caller.
PATIENCE_S = 15.0

T = TypeVar("T")


#: Python's message if no thread can start.
_NO_THREAD = "can't start new thread"


def is_shortage(error: BaseException) -> bool:
    if isinstance(error, RuntimeError):
        return str(error) == _NO_THREAD
    return isinstance(error, OSError) and (error.errno in ERRORS or error.errno == OF_UVLOOP)


#: What Python and OpenBLAS write where no thread can be started.
_NO_THREADS = (_NO_THREAD, "pthread_create failed")
#: What Python writes where no process can be started, together with the name of the call that failed.
_NO_PROCESS, _STARTS = "[Errno {}]".format(errno.EAGAIN), "fork"


def is_named_in(text: str) -> bool:
    """Whether the last words of a process name a shortage of threads or processes."""
    return any(words in text for words in _NO_THREADS) or (_NO_PROCESS in text and _STARTS in text)


def tried_again(start: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """The result of `start`, which is repeated while a shortage prevents it. Blocks for up to `patience_s` seconds,
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
