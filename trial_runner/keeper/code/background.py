"""Slow work in background processes: unpacking, copying and removing, one process each.

A forked single-threaded child does the work; progress and result come through a pipe. It is not a job: if it dies, the
work is repeated on the next request. It ends with this process, as the next keeper would do the same work in the same
place.
"""

import os
import signal
import time
from collections import deque
from contextlib import suppress
from typing import Callable, Deque, List, Optional

from trial_runner import processes, protocol
from trial_runner.keeper.serving.requests import Refusal, system_refusal
from trial_runner.loop import Loop

#: Maximum size of the error message in bytes.
_MOST_BYTES = 4096
_DONE = b"done"
#: Seconds between two progress reports.
_TELL_EVERY_S = 0.5

#: Called with the progress, in units of the work.
Tell = Callable[[int], None]
Work = Callable[[Tell], None]
#: Called with None on success, otherwise with the reason.
Then = Callable[[Optional[Refusal]], None]


_KILLED = Refusal(protocol.UNAVAILABLE, "The process for this work was killed. Try again.")
_STOPPED = Refusal(protocol.UNAVAILABLE, "It was stopped, because its folder is being removed.")


class _Item:
    """A piece of work. `writes`: the file or folder that it creates or removes."""

    def __init__(self, work: Work, then: Then, tell: Tell, writes: str) -> None:
        self.work = work
        self.then = then
        self.tell = tell
        self.writes = writes
        self.words = bytearray()
        self.pid = 0
        #: Start time of its process; with the pid it identifies it.
        self.start_ticks = 0
        self.is_stopped = False
        #: Called when its process is gone.
        self.on_end: List[Callable[[], None]] = []

    def is_in(self, folder: str) -> bool:
        return self.writes == folder or self.writes.startswith(folder + "/")

    def stop(self) -> None:
        """Kills its process, whose id is not reused before it is reaped here."""
        self.is_stopped = True
        stat = processes.read_stat(self.pid)
        if stat is not None and stat.start_ticks == self.start_ticks:
            processes.send_signal(self.pid, signal.SIGKILL)


class BackgroundWork:
    """Functions that run in one process each, at most `most` at a time; the others are queued."""

    def __init__(self, loop: Loop, most: int) -> None:
        self._loop = loop
        self._most = most
        self._running: List[_Item] = []
        #: Called whenever one has ended, after its `then`.
        self.on_done: Callable[[], None] = lambda: None
        self._waiting: Deque[_Item] = deque()

    @property
    def count(self) -> int:
        """The number of running and queued pieces of work."""
        return len(self._running) + len(self._waiting)

    def run(self, work: Work, then: Then, tell: Tell = lambda _: None, *, writes: str) -> None:
        """Adds work. An error of `work` is reported as a sentence. Raises OSError if no process can start."""
        item = _Item(work, then, tell, writes)
        if len(self._running) < self._most:
            self._start(item)
        else:
            self._waiting.append(item)

    def stop_in(self, folder: str, then: Callable[[], None]) -> None:
        """Stops the work in a folder, also queued work; `then` is called when none is left."""
        for item in [one for one in self._waiting if one.is_in(folder)]:
            self._waiting.remove(item)
            item.then(_STOPPED)
        left = [one for one in self._running if one.is_in(folder)]
        if not left:
            then()
            return

        def note_end() -> None:
            left.pop()
            if not left:
                then()

        for item in tuple(left):
            item.on_end.append(note_end)
            item.stop()

    def _start(self, item: _Item) -> None:
        reader, writer = os.pipe()
        parent = os.getpid()
        try:
            item.pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if item.pid == 0:
            _work(item.work, writer, parent)
        os.close(writer)
        stat = processes.read_stat(item.pid)
        item.start_ticks = 0 if stat is None else stat.start_ticks
        self._running.append(item)
        self._loop.watch(reader, lambda _: self._read(reader, item))

    def _start_waiting(self, item: _Item) -> None:
        try:
            self._start(item)
        except OSError as error:
            item.then(system_refusal(error, "What comes before the job's start"))

    def _read(self, reader: int, item: _Item) -> None:
        data = os.read(reader, _MOST_BYTES)
        item.words += data
        if data:
            _tell_last(item.words, item.tell)
            return
        self._loop.unwatch(reader)
        os.close(reader)
        self._running.remove(item)  # it is reaped with orphans
        try:
            item.then(_STOPPED if item.is_stopped else _outcome(bytes(item.words)))
        finally:  # an error there concerns one job; the others continue
            self._go_on(item)

    def _go_on(self, ended: _Item) -> None:
        for call in ended.on_end:
            call()
        while self._waiting and len(self._running) < self._most:
            self._start_waiting(self._waiting.popleft())
        self.on_done()


def _tell_last(words: bytearray, tell: Tell) -> None:
    """Reads complete lines with numbers, and reports the last one."""
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
    return Refusal(kind, sentence) if sentence else _KILLED


def _work(work: Work, writer: int, parent: int) -> None:
    """Does the work in the child; does not return."""
    try:
        processes.die_with(parent)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        _close_all_but(writer)
        work(_teller(writer))
        report = _DONE
    except Refusal as refusal:
        report = _report(refusal)
    except OSError as error:
        report = _report(system_refusal(error, "What comes before the job's start"))
    except BaseException as error:
        report = _report(Refusal(protocol.REJECTED, str(error) or type(error).__name__))
    try:
        os.write(writer, report)
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


def _report(refusal: Refusal) -> bytes:
    return "{} {}".format(refusal.kind, refusal.message).encode("utf-8", "replace")[:_MOST_BYTES]


def _close_all_but(writer: int) -> None:
    """Closes the lock and the connections, which must not outlive the keeper in this child."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != writer:
            with suppress(OSError):  # the listing's own
                os.close(int(name))
