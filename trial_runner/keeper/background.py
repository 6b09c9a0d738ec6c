"""Work that would hold a keeper up, done beside it: unpacking and removing, in a process each.

A child of one thread copies this process and does it; what came of it comes through a pipe. It is no job: whatever
happens to it, the work is done again when it is asked for again.
"""

import os
import signal
from typing import Callable, Optional

from trial_runner import protocol
from trial_runner.keeper.requests import Refusal, system_refusal
from trial_runner.loop import Loop

#: Bytes of a sentence that tells why it failed.
_MOST_BYTES = 4096
_DONE = b"done"

#: Told None when it is done, or why not.
Then = Callable[[Optional[Refusal]], None]


class BackgroundWork:
    """Functions that run in a process each, any number at a time."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        #: How many are under way.
        self.count = 0

    def run(self, work: Callable[[], None], then: Then) -> None:
        """`work` may raise what it likes: its sentence is told. Raises OSError when there is no process for it."""
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if pid == 0:
            _work(work, writer)
        os.close(writer)
        self.count += 1
        words = bytearray()
        self._loop.watch(reader, lambda _: self._read(reader, words, then))

    def _read(self, reader: int, words: bytearray, then: Then) -> None:
        data = os.read(reader, _MOST_BYTES)
        words += data
        if data:
            return
        self._loop.unwatch(reader)
        os.close(reader)
        self.count -= 1  # it is reaped with orphans
        kind, _, sentence = bytes(words).decode("utf-8", "replace").partition(" ")
        if words == _DONE:
            then(None)
        elif sentence:
            then(Refusal(kind, sentence))
        else:
            then(Refusal(protocol.UNAVAILABLE, "The process that was to do it was killed. It can be tried again."))


def _work(work: Callable[[], None], writer: int) -> None:
    """Does the work in the child; does not return."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        _close_all_but(writer)
        work()
        word = _DONE
    except Refusal as refusal:
        word = _word(refusal)
    except OSError as error:
        word = _word(system_refusal(error, "What comes before the job's start"))
    except BaseException as error:
        word = _word(Refusal(protocol.REJECTED, str(error) or type(error).__name__))
    try:
        os.write(writer, word)
    finally:
        os._exit(0)


def _word(refusal: Refusal) -> bytes:
    return "{} {}".format(refusal.kind, refusal.message).encode("utf-8", "replace")[:_MOST_BYTES]


def _close_all_but(writer: int) -> None:
    """Neither the lock nor a connection is to outlive the keeper with us."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != writer:
            try:
                os.close(int(name))
            except OSError:
                pass  # the listing's own
