"""What the command holds open, for storage that has a file only once it is closed: copied to short files, which are
closed at once.

A thread of its own, because such storage takes its time: nothing else must wait for it.
"""

import os
import threading
from typing import Callable, Dict, List, Tuple

from trial_runner import protocol
from trial_runner.wire import foreign_files, removal

#: Seconds from one round of copies to the next.
_PAUSE_S = 2.0
_WRITING = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

#: Name of a log or an outbox, and the folder below which it is.
File = Tuple[str, str]


class Pieces(threading.Thread):
    """`folder`: the attempt's; `files`: those that there are now."""

    def __init__(
        self, folder: str, container: str, files: Callable[[], List[File]], say: Callable[[str], None]
    ) -> None:
        super().__init__(name="pieces", daemon=True)
        self._folder = folder
        self._place = "{}/{}".format(protocol.PIECES_FOLDER, container)
        self._files = files
        self._say = say
        #: Name → bytes of it that were copied.
        self._copied: Dict[str, int] = {}
        self._news = threading.Event()
        self._end = threading.Event()
        self._trouble = ""

    def notice(self) -> None:
        """Some file may be new, or have grown."""
        self._news.set()

    def finish(self, patience_s: float) -> None:
        """Removes the pieces: the files themselves are closed. Gives up after so many seconds."""
        self._end.set()
        self._news.set()
        self.join(patience_s)

    def run(self) -> None:
        self._remove(protocol.PIECES_FOLDER)  # those of a container before this one
        while not self._end.is_set():
            self._copy_all()
            self._end.wait(_PAUSE_S)
            self._news.wait()
            self._news.clear()
        self._remove(self._place)

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
        descriptor = foreign_files.open_file(self._folder, "{}/{}".format(place, piece), _WRITING, 0o666)
        try:
            foreign_files.write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def _remove(self, name: str) -> None:
        removal.remove(os.path.join(self._folder, name))

    def _complain(self, sentence: str) -> None:
        if sentence != self._trouble:
            self._say(sentence)
        self._trouble = sentence
