"""Work that would hold a keeper up, done beside it: unpacking, copying and removing, in a process each.

A child of one thread copies this process and does it; what came of it comes through a pipe, and before that how far it
is. It is no job: whatever happens to it, the work is done again when it is asked for again. It ends with this process:
the next one would have the same work done in the same place.
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

#: Bytes of the sentence that says why it failed.
_MOST_BYTES = 4096
_DONE = b"done"
#: Seconds between two reports of how far it is.
_TELL_EVERY_S = 0.5

#: Told how far the work is, in units of its own.
Tell = Callable[[int], None]
Work = Callable[[Tell], None]
#: Told None when it is done, or why not.
Then = Callable[[Optional[Refusal]], None]


_KILLED = Refusal(protocol.UNAVAILABLE, "The process that was to do it was killed. It can be tried again.")
_STOPPED = Refusal(protocol.UNAVAILABLE, "It was stopped, as the folder that it was done in is removed.")


class _Item:
    """A piece of work. `writes`: the file or folder that it makes or removes."""

    def __init__(self, work: Work, then: Then, tell: Tell, writes: str) -> None:
        self.work = work
        self.then = then
        self.tell = tell
        self.writes = writes
        self.words = bytearray()
        self.pid = 0
        #: Of its process: with the pid they name it.
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
    """Functions that run in a process each, at most `most` at a time; the others wait their turn."""

    def __init__(self, loop: Loop, most: int) -> None:
        self._loop = loop
        self._most = most
        self._running: List[_Item] = []
        #: Called whenever one has ended, after its `then`.
        self.on_done: Callable[[], None] = lambda: None
        self._waiting: Deque[_Item] = deque()

    @property
    def count(self) -> int:
        """How many are under way, or wait."""
        return len(self._running) + len(self._waiting)

    def run(self, work: Work, then: Then, tell: Tell = lambda _: None, *, writes: str) -> None:
        """An error of `work` is reported by its sentence. Raises OSError when no process can be had."""
        item = _Item(work, then, tell, writes)
        if len(self._running) < self._most:
            self._start(item)
        else:
            self._waiting.append(item)

    def stop_in(self, folder: str, then: Callable[[], None]) -> None:
        """Stops what is done in a folder, or waits for its turn; `then` is called when none of it is left."""
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
        finally:  # what fails there is one job's; the others have their turn
            self._go_on(item)

    def _go_on(self, ended: _Item) -> None:
        for call in ended.on_end:
            call()
        while self._waiting and len(self._running) < self._most:
            self._start_waiting(self._waiting.popleft())
        self.on_done()


def _tell_last(words: bytearray, tell: Tell) -> None:
    """Takes lines with numbers from the front, and reports the last one."""
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
    """Neither the lock nor a connection is to outlive the keeper with us."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != writer:
            with suppress(OSError):  # the listing's own
                os.close(int(name))
