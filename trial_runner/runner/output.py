"""Copies the command's output to the runner's own, which the platform collects, and forwards it as log files.

For storage that shows files only after they are closed, it also copies open files to short closed ones. Each task has
its own thread, as the reader of the output and such storage may be slow, but results must not wait.
"""

import os
import re
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from trial_runner import protocol
from trial_runner.runner.client import Answer, Post, Refused, Unavailable
from trial_runner.runner.delivery import Undelivered
from trial_runner.runner.posts import Stream
from trial_runner.wire import foreign_files, removal
from trial_runner.wire.descriptors import Descriptor

_COPY_BYTES = 64 * 1024


class Copy(NamedTuple):
    """A copy from a file to a descriptor."""

    path: str
    descriptor: int


class Echo(threading.Thread):
    """Starts at the files' present ends."""

    def __init__(self, copies: List[Copy]) -> None:
        super().__init__(name="echo", daemon=True)
        self._copies = [copy for copy in copies if not _is_same_file(copy)]
        self._offsets = {copy: _size(copy.path) for copy in self._copies}
        self._news = threading.Event()
        self._is_last = False

    def notice(self) -> None:
        """Notes that the files may have grown."""
        self._news.set()

    def finish(self, patience_s: float) -> None:
        """Copies the rest and ends; gives up after a number of seconds."""
        self._is_last = True
        self._news.set()
        self.join(patience_s)

    def run(self) -> None:
        is_last = False
        while not is_last:
            self._news.wait()
            self._news.clear()
            is_last = self._is_last
            for copy in list(self._offsets):
                self._copy(copy)

    def _copy(self, copy: Copy) -> None:
        try:
            data = _read_pipe(copy, self._offsets[copy])
            while data:
                self._offsets[copy] += os.write(copy.descriptor, data)
                data = _read_pipe(copy, self._offsets[copy])
        except OSError:
            del self._offsets[copy]  # the output's reader or the file is gone


def _read_pipe(copy: Copy, offset: int) -> bytes:
    return foreign_files.read(*os.path.split(copy.path), offset=offset, limit=_COPY_BYTES)


def _is_same_file(copy: Copy) -> bool:
    """Whether the runner's output is that same file: copying would never end."""
    try:
        return os.path.samestat(os.stat(copy.path), os.fstat(copy.descriptor))
    except OSError:
        return False


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


_GATHER_S = 1.0
_UNDECODED = re.compile("[\udc80-\udcff]")


class LogFile:
    """A log file, and how much of it was delivered."""

    def __init__(self, name: str, path: str) -> None:
        #: stdout, stderr or trial.log.
        self.name = name
        self.path = path
        self.offset = 0
        #: Bytes that the manager has from a file of an earlier container.
        self.shift = 0
        self.is_given_up = False

    @property
    def unsent(self) -> int:
        """The unsent bytes."""
        return 0 if self.is_given_up else max(0, self.size - self.offset)

    @property
    def size(self) -> int:
        try:
            return foreign_files.size(*os.path.split(self.path))
        except OSError:
            return 0


class _Piece(NamedTuple):
    start: int
    data: bytes


class LogForward(Stream):
    """Posts one log. `source`: its process, unless that is the reporter; otherwise empty."""

    place_at_end = 2

    def __init__(self, file: LogFile, source: str, undelivered: Undelivered) -> None:
        super().__init__()
        self._file = file
        self._source = source
        self._undelivered = undelivered
        self._pending: Optional[_Piece] = None
        #: When changes are to be posted; None: there are none.
        self._post_at: Optional[float] = 0.0

    def note_change(self) -> None:
        if self._post_at is None or self.is_ending:
            self._post_at = 0.0 if self.is_ending else time.monotonic() + _GATHER_S
        elif self._file.unsent >= protocol.MAX_LOG_POST:
            self._post_at = 0.0

    def wanted_at(self) -> Optional[float]:
        if self._pending is None and self._post_at is not None and self._post_at <= time.monotonic():
            self._pending = _read(self._file, self.is_ending) if self._file.unsent else None
            self._post_at = None if self._pending is None else self._post_at
        return self._post_at if self._pending is None else 0.0

    def post(self) -> Post:
        assert self._pending is not None, "nothing is due"
        piece = self._pending
        body = {"file": self._file.name, "offset": piece.start + self._file.shift, "data": text_of(piece.data)}
        return "log", {**body, "source": self._source} if self._source else body

    def settle(self, answer: Answer) -> None:
        assert self._pending is not None, "nothing was due"
        piece = self._pending
        try:
            offset = answer()["offset"]
        except Refused as error:
            sentence = "The manager refused {} ({}): it stays in the trial's folder."
            self._undelivered.add(sentence.format(self._file.name, error))
            self._file.is_given_up = True
            self._pending = None
            return
        self._pending = None
        self._on_stored(piece, offset)

    def give_up(self) -> None:
        super().give_up()
        self._undelivered.add("Time ran out before all logs were delivered: the rest stays in the trial's folder.")

    def _on_stored(self, piece: _Piece, offset: int) -> None:
        file = self._file
        if offset - file.shift > file.size:
            file.shift = offset - piece.start
            return
        file.offset = max(0, offset - file.shift)
        if file.offset <= piece.start:
            raise Unavailable("the manager has {} only up to byte {}".format(file.name, offset))


def text_of(data: bytes) -> str:
    """Text with the same length in UTF-8 as the bytes: each invalid byte becomes a question mark."""
    return _UNDECODED.sub("?", data.decode("utf-8", "surrogateescape"))


def _read(file: LogFile, is_all: bool) -> Optional[_Piece]:
    """The next piece of a log; None without a complete character, or the file is gone."""
    try:
        data = foreign_files.read(*os.path.split(file.path), offset=file.offset, limit=protocol.MAX_LOG_POST)
    except OSError:
        return None
    if not is_all or len(data) == protocol.MAX_LOG_POST:
        data = data[: len(data) - _incomplete_bytes(data)]
    return _Piece(file.offset, data) if data else None


def _incomplete_bytes(data: bytes) -> int:
    """The number of bytes at the end that start an incomplete character."""
    for count, byte in enumerate(reversed(data[-3:]), 1):
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return count if count < length else 0
        if byte < 0x80:
            return 0
    return 0


#: Seconds from one round of copies to the next.
_PAUSE_S = 2.0
_WRITING = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

#: Name of a log or an outbox, and the folder that contains it.
File = Tuple[str, str]


class Pieces(threading.Thread):
    """`folder`: the attempt's; `files`: the present ones."""

    def __init__(
        self, folder: str, container: str, files: Callable[[], List[File]], say: Callable[[str], None]
    ) -> None:
        super().__init__(name="pieces", daemon=True)
        self._folder = folder
        self._place = "{}/{}".format(protocol.PIECES_FOLDER, container)
        self._files = files
        self._say = say
        #: Name → number of copied bytes.
        self._copied: Dict[str, int] = {}
        self._news = threading.Event()
        self._end = threading.Event()
        self._trouble = ""

    def notice(self) -> None:
        """Notes that files may be new, or have grown."""
        self._news.set()

    def finish(self, patience_s: float) -> None:
        """Removes the pieces, as the files themselves are closed. Gives up after a number of seconds."""
        self._end.set()
        self._news.set()
        self.join(patience_s)

    def run(self) -> None:
        removal.remove(os.path.join(self._folder, protocol.PIECES_FOLDER))  # those of an earlier container
        while not self._end.is_set():
            self._copy_all()
            self._end.wait(_PAUSE_S)
            self._news.wait()
            self._news.clear()
        removal.remove(os.path.join(self._folder, self._place))

    def _copy_all(self) -> None:
        for name, folder in self._files():
            try:
                self._copy(name, folder)
            except OSError as error:
                self._complain("{} cannot be copied for the manager yet: {}".format(name, error))

    def _copy(self, name: str, folder: str) -> None:
        size, copied = foreign_files.size(folder, name), self._copied.get(name, -1)
        if size <= copied:
            return
        for number in range(max(copied, 0) // protocol.PIECE_BYTES, size // protocol.PIECE_BYTES + 1):
            start = number * protocol.PIECE_BYTES
            data = foreign_files.read(folder, name, start, protocol.PIECE_BYTES)
            if data or not number:
                self._write("{}/{}".format(self._place, name), str(number), data)
            self._copied[name] = start + len(data)

    def _write(self, place: str, piece: str, data: bytes) -> None:
        foreign_files.make_folder(self._folder, place)
        with Descriptor(foreign_files.open_file(self._folder, "{}/{}".format(place, piece), _WRITING, 0o666)) as opened:
            foreign_files.write_all(opened, data)

    def _complain(self, sentence: str) -> None:
        if sentence != self._trouble:
            self._say(sentence)
        self._trouble = sentence
