"""Work that would hold a keeper up, done beside it: unpacking, copying and removing, in a process each.

A child of one thread copies this process and does it; what came of it comes through a pipe, and before that how far it
is. It is no job: whatever happens to it, the work is done again when it is asked for again.
"""

import os
import signal
import time
from collections import deque
from typing import Callable, Deque, Optional

from trial_runner import protocol
from trial_runner.keeper.requests import Refusal, system_refusal
from trial_runner.loop import Loop

#: Bytes of a sentence that tells why it failed.
_MOST_BYTES = 4096
_DONE = b"done"
#: Seconds between two words about how far it is.
_TELL_EVERY_S = 0.5

#: Told how far the work is, in units of its own.
Tell = Callable[[int], None]
Work = Callable[[Tell], None]
#: Told None when it is done, or why not.
Then = Callable[[Optional[Refusal]], None]


def _untold(_: int) -> None:
    """Nobody wants to know how far it is."""


class BackgroundWork:
    """Functions that run in a process each, at most `most` at a time; the others wait their turn."""

    def __init__(self, loop: Loop, most: int) -> None:
        self._loop = loop
        self._most = most
        self._running = 0
        #: Called whenever one has ended, after its `then`.
        self.on_done: Callable[[], None] = lambda: None
        self._waiting: Deque[Callable[[], None]] = deque()

    @property
    def count(self) -> int:
        """How many are under way, or wait."""
        return self._running + len(self._waiting)

    def run(self, work: Work, then: Then, tell: Tell = _untold) -> None:
        """`work` may raise what it likes: its sentence is told. Raises OSError when there is no process for it."""
        if self._running < self._most:
            self._start(work, then, tell)
        else:
            self._waiting.append(lambda: self._start_waiting(work, then, tell))

    def _start(self, work: Work, then: Then, tell: Tell) -> None:
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
        self._running += 1
        words = bytearray()
        self._loop.watch(reader, lambda _: self._read(reader, words, then, tell))

    def _start_waiting(self, work: Work, then: Then, tell: Tell) -> None:
        try:
            self._start(work, then, tell)
        except OSError as error:
            then(system_refusal(error, "What comes before the job's start"))

    def _read(self, reader: int, words: bytearray, then: Then, tell: Tell) -> None:
        data = os.read(reader, _MOST_BYTES)
        words += data
        if data:
            _tell_last(words, tell)
            return
        self._loop.unwatch(reader)
        os.close(reader)
        self._running -= 1  # it is reaped with orphans
        then(_outcome(bytes(words)))
        while self._waiting and self._running < self._most:
            self._waiting.popleft()()
        self.on_done()


def _tell_last(words: bytearray, tell: Tell) -> None:
    """Takes lines with numbers from the front, and tells the last one."""
    found = None
    head, line_end, rest = words.partition(b"\n")
    while line_end and head.isdigit():
        found, words[:] = int(head), rest
        head, line_end, rest = words.partition(b"\n")
    if found is not None:
        tell(found)


def _outcome(words: bytes) -> Optional[Refusal]:
    if words == _DONE:
        return None
    kind, _, sentence = words.decode("utf-8", "replace").partition(" ")
    if sentence:
        return Refusal(kind, sentence)
    return Refusal(protocol.UNAVAILABLE, "The process that was to do it was killed. It can be tried again.")


def _work(work: Work, writer: int) -> None:
    """Does the work in the child; does not return."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        _close_all_but(writer)
        work(_teller(writer))
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


def _teller(writer: int) -> Tell:
    next_s = [time.monotonic() + _TELL_EVERY_S]

    def tell(done: int) -> None:
        now_s = time.monotonic()
        if now_s >= next_s[0]:
            next_s[0] = now_s + _TELL_EVERY_S
            os.write(writer, b"%d\n" % done)

    return tell


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
