"""Results that NNI's 2.x SDK prints, as lines of an outbox: ``NNISDK_MEb'{"type": "FINAL", "value": "0.75", …}'``.

The payload is JSON, not a Python literal, and may hold quotes; a progress bar may stand before the mark. The outbox is
a function of what was printed: made anew from the beginning it is the same.
"""

import json
import os
from typing import Any, Callable, Optional

from trial_runner import protocol
from trial_runner.wire import foreign_files, removal

_READ_BYTES = 256 * 1024
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_TYPES = {"PERIODICAL": "intermediate", "FINAL": "final"}

_decoder = json.JSONDecoder()


class StdoutMetrics:
    """Follows one file and fills one outbox, from its beginning."""

    def __init__(self, stdout: str, outbox: str, say: Callable[[str], None]) -> None:
        self._stdout = stdout
        self._outbox = outbox
        self._say = say
        self._offset = 0
        self._buffer = b""
        self._unwritten = b""
        self._trouble = ""
        removal.remove(outbox)

    def extract(self, is_all: bool) -> None:
        """Takes what is new. `is_all`: the output is complete. A full disk delays results, and loses none."""
        try:
            self._write()
            while self._read():
                self._take(False)
                self._write()
            self._take(is_all)
            self._write()
            self._trouble = ""
        except OSError as error:
            if not self._trouble:
                self._trouble = str(error)
                self._say("Printed results cannot be copied to an outbox yet: {}".format(error))

    def _read(self) -> bool:
        try:
            data = foreign_files.read(*os.path.split(self._stdout), offset=self._offset, limit=_READ_BYTES)
        except FileNotFoundError:
            return False
        self._offset += len(data)
        self._buffer += data
        return bool(data)

    def _take(self, is_all: bool) -> None:
        """Results of whole lines; of the rest, only what may become one is kept."""
        mark = protocol.STDOUT_METRIC_MARK
        begin = self._buffer.find(mark)
        while begin >= 0:
            end = self._buffer.find(b"\n", begin)
            if end < 0 and not is_all:
                break
            end = len(self._buffer) if end < 0 else end
            self._unwritten += _lines(self._buffer[begin:end])
            self._buffer = self._buffer[end:]
            begin = self._buffer.find(mark)
        if begin < 0:
            self._buffer = self._buffer[-len(mark) + 1 :]
        elif len(self._buffer) - begin > protocol.MAX_RECORD:
            self._buffer = self._buffer[begin + len(mark) :]
        else:
            self._buffer = self._buffer[begin:]

    def _write(self) -> None:
        if not self._unwritten:
            return
        descriptor = foreign_files.open_file(*os.path.split(self._outbox), flags=_APPENDING, mode=0o666)
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(descriptor, self._unwritten) :]
        finally:
            os.close(descriptor)


def _lines(printed: bytes) -> bytes:
    """The lines of the results in one printed line, which begins with a mark; two threads may have printed at once."""
    texts = printed.decode("utf-8", "replace").split(protocol.STDOUT_METRIC_MARK.decode())[1:]
    return b"".join(line.encode() for line in map(_line, texts) if line is not None)


def _line(text: str) -> Optional[str]:
    """The outbox line of a printed result; None for other text."""
    try:
        record, _ = _decoder.raw_decode(text)
        type_, value = _TYPES[record["type"]], record["value"]
        return '{{"type":"{}","value":{}}}\n'.format(type_, _json(value))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _json(value: Any) -> str:
    """A value as one line of JSON; text that is JSON already stays as it is. Raises ValueError."""
    if not isinstance(value, str):
        return json.dumps(value)
    decoded = json.loads(value)
    return json.dumps(decoded) if "\n" in value or "\r" in value or not value.isascii() else value
