"""The outboxes of one job, read from where they were last read. The files are the buffer: nothing is kept here."""

import os
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Set

from trial_runner import protocol
from trial_runner.wire import foreign_files
from trial_runner.wire.foreign_files import Listing
from trial_runner.wire.outbox_name import file_name, spelled
from trial_runner.wire.records import Records, read_records

#: Bytes read at once where nobody says otherwise.
_CHUNK_BYTES = 256 * 1024


class Chunk(NamedTuple):
    """Records of one outbox between two byte offsets."""

    outbox: str
    start: int
    end: int
    lines: List[str]


class Outboxes:
    """Files below `outbox/`, and NNI's metrics file. Names that begin with a dot are nobody's outbox."""

    def __init__(self, attempt_directory: str, log: Callable[[str], None]) -> None:
        self._attempt_directory = attempt_directory
        self._log = log
        self._offsets: Dict[str, int] = {}
        self._shortened: Set[str] = set()
        self._has_too_many = False
        #: Bytes read at once; longer only for a single record that is longer.
        self.chunk_bytes = _CHUNK_BYTES

    def rewind(self, offsets: Dict[str, int]) -> None:
        """The next chunks begin at these byte offsets; at 0 in outboxes that are not named."""
        self._offsets = dict(offsets)

    def move(self, outbox: str, offset: int) -> None:
        """The next chunk of this outbox begins there."""
        self._offsets[outbox] = offset

    def offsets(self) -> Dict[str, int]:
        """Where the next chunk of each outbox that was ever read begins."""
        return dict(self._offsets)

    def chunks(self, is_all: bool) -> Iterator[Chunk]:
        """What is new. A caller that stops in between goes on there next time. `is_all`: nobody writes any more."""
        for outbox in self.names():
            chunk = self.next_chunk(outbox, is_all)
            while chunk is not None:
                yield chunk
                chunk = self.next_chunk(outbox, is_all)

    def names(self) -> List[str]:
        """The outboxes that there are now, as `wire.outbox_name` spells them."""
        files = sorted(map(spelled, self._listing().files))
        return [*files, protocol.METRICS_FILE] if self._has_metrics_file() else files

    def sizes(self) -> Dict[str, int]:
        """Bytes of each outbox that there is now; one that vanishes meanwhile is left out."""
        found: Dict[str, int] = {}
        for name in self.names()[: protocol.MOST_OUTBOXES]:
            try:
                found[name] = foreign_files.size(self._attempt_directory, file_name(name))
            except OSError:
                pass
        return found

    def next_chunk(self, outbox: str, is_all: bool) -> Optional[Chunk]:
        """What is new in one outbox; None when there is nothing that is complete."""
        start = self._offsets.get(outbox, 0)
        try:
            records = self._read(outbox, start, is_all)
        except OSError as error:
            self._log("{}/{} cannot be read: {}".format(self._attempt_directory, outbox, error.strerror))
            return None
        if records is None or records.length == 0:
            return None
        if records.skipped:
            self._log_skipped(outbox, start, records.skipped)
        self._offsets[outbox] = start + records.length
        return Chunk(outbox, start, start + records.length, records.texts)

    def folders(self) -> List[str]:
        """Folders below the attempt's that hold outboxes, deeper ones after their parents."""
        return self._listing().folders

    def _listing(self) -> Listing:
        found = foreign_files.listing(self._attempt_directory, protocol.OUTBOX_FOLDER)
        if not found.is_complete and not self._has_too_many:
            self._has_too_many = True
            place = os.path.join(self._attempt_directory, protocol.OUTBOX_FOLDER)
            self._log("{} holds more, or deeper, than is looked at: some of it is not read".format(place))
        return found

    def _has_metrics_file(self) -> bool:
        try:
            return foreign_files.size(self._attempt_directory, protocol.METRICS_FILE) >= 0
        except OSError:
            return False

    def _read(self, outbox: str, start: int, is_all: bool) -> Optional[Records]:
        name = file_name(outbox)
        new = foreign_files.size(self._attempt_directory, name) - start
        if new <= 0:
            if new < 0:
                self._log_shortened(outbox)
            return None
        descriptor = foreign_files.open_file(self._attempt_directory, name)
        try:
            # one byte more than there is shows the end; a whole chunk's room would be got and given back each time
            return self._read_records(descriptor, outbox, start, is_all, min(new + 1, self.chunk_bytes))
        finally:
            os.close(descriptor)

    def _read_records(self, descriptor: int, outbox: str, start: int, is_all: bool, size: int) -> Records:
        records = read_records(descriptor, outbox, start, is_all, size)
        left = os.fstat(descriptor).st_size - start - records.length if is_all else 0
        if 0 < left < size and records.length < size:
            self._log_skipped(outbox, start + records.length, left)
        return records

    def _log_shortened(self, outbox: str) -> None:
        """Once: what was there is stored, and what takes its place cannot be told from it."""
        if outbox not in self._shortened:
            self._shortened.add(outbox)
            place = os.path.join(self._attempt_directory, outbox)
            self._log("{} became shorter and is not read on: append to it, with >> in a shell".format(place))

    def _log_skipped(self, outbox: str, start: int, length: int) -> None:
        place = os.path.join(self._attempt_directory, outbox)
        self._log("{} has {} bytes that are no record at offset {}".format(place, length, start))
