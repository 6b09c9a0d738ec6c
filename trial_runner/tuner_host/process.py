"""The frame of a tuner's process: pipes, signals and log around the verbs that it answers.

It answers frames (`trial_runner.protocol`) on its standard input and output, one after the other, and exits when its
input ends; `verbs` has the answers. Its standard error is the experiment's ``dispatcher.log``, which also gets a user
class's output. It imports as little as possible, because an experiment's first trial waits for it.

It survives all exceptions of verbs. On SIGUSR1 it writes all stacks to its log and to the file
``$NNI_MANAGER_STACK_FILE``, also while a call hangs. The file is emptied when the next request begins. Its working
directory is ``$NNI_CHECKPOINT_DIRECTORY``.
"""

from __future__ import annotations

import faulthandler
import io
import logging
import os
import signal
import sys
from threading import Lock
from typing import Callable, Iterator

from trial_runner.protocol import Decoder, encode
from trial_runner.tuner_host.verbs import Message, Verbs

STACK_FILE = "NNI_MANAGER_STACK_FILE"
CHECKPOINT_FOLDER = "NNI_CHECKPOINT_DIRECTORY"
_READ_SIZE = 1 << 16
#: From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1

_NEWS = encode({"event": "proposals"})

_log = logging.getLogger("tuner_host")


def serve(verbs: Verbs) -> None:
    """Answers requests until standard input ends; does not return."""
    _die_with_parent()
    os.chdir(os.environ.get(CHECKPOINT_FOLDER) or ".")
    requests, answers = _take_pipes()
    _start_log()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the parent
    forget_stacks = _show_stacks_on_signal()
    sending = Lock()
    verbs.on_news = lambda: _send_news(answers, sending)
    try:
        for request in _messages(requests):
            forget_stacks()
            _send(answers, verbs.answer(request), sending)
    except BrokenPipeError:
        _log.debug("the answers have no reader any more")
    verbs.close()
    _end()


def _die_with_parent() -> None:
    """Makes this process die with its parent, even in a call that never returns."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (ImportError, OSError, AttributeError):  # a minimal Python: it ends with its input, unless a call hangs
        _log.debug("this process cannot be told of its parent's death")


def _take_pipes() -> tuple[int, int]:
    """Moves both pipes out of the way, so that `print` and `input` in the user's code cannot break the frames."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return requests, answers


def _start_log() -> None:
    """Starts the log in NNI's format; ``NNI_LOG_LEVEL`` is one of NNI's level names."""
    word = os.environ.get("NNI_LOG_LEVEL", "info")
    level = logging.getLevelName({"trace": "DEBUG", "fatal": "CRITICAL"}.get(word, word.upper()))
    logging.basicConfig(
        stream=sys.stderr,
        level=level if isinstance(level, int) else logging.INFO,
        format="[%(asctime)s] %(levelname)s (%(name)s) %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )


def _show_stacks_on_signal() -> Callable[[], None]:
    """Answers a function that empties the file.

    The file is written by C code right in the signal handler, so it shows even a call that never comes back to Python.
    The log follows from Python, as soon as it can.
    """
    signal.signal(signal.SIGUSR1, lambda *_: faulthandler.dump_traceback(sys.stderr, all_threads=True))
    path = os.environ.get(STACK_FILE)
    if not path:
        faulthandler.register(signal.SIGUSR1, sys.stderr, all_threads=True, chain=False)
        return lambda: None
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    faulthandler.register(signal.SIGUSR1, file, all_threads=True, chain=True)
    return lambda: os.ftruncate(file, 0) if os.fstat(file).st_size else None


def _messages(requests: int) -> Iterator[Message]:
    decoder = Decoder()
    while True:
        data = os.read(requests, _READ_SIZE)
        if not data:
            return
        yield from decoder.feed(data)


def _send(answers: int, frame: bytes, sending: Lock) -> None:
    view = memoryview(frame)
    with sending:
        while view:
            view = view[os.write(answers, view) :]


def _send_news(answers: int, sending: Lock) -> None:
    try:
        _send(answers, _NEWS, sending)
    except OSError:
        _log.debug("the news has no reader any more")


def _end() -> None:
    """Ends the process at once, as threads of the user's class may still run."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
