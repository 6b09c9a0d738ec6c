"""Logs from jobs elsewhere, stored here up to a size limit per attempt.

An oversized log loses its middle: head, a sentence that counts the missing bytes, tail. The sentence has a fixed place,
so that a file alone shows how many bytes of its log have arrived, which is where the sender continues.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from trial_runner import protocol
from trial_runner.wire import foreign_files
from trial_runner.wire.descriptors import Descriptor

#: Bytes of the beginning of a log that stay, and minimum size of its end.
HEAD_BYTES = 64 * 1024
_SENTENCE = (
    "\n[nni_manager: {:015d} bytes of this log are left out here: the logs of an attempt are stored up to maxLogSize]\n"
)
_SENTENCE_BYTES = len(_SENTENCE.format(0))
_LEFT_OUT = re.compile(rb"\n\[nni_manager: ([0-9]{15}) bytes of this log are left out here: ")
#: Size below which a log is stored completely, as truncating copies the file.
_SHORTEST = 3 * HEAD_BYTES + _SENTENCE_BYTES
#: Serializes writes to an attempt's logs.
_LOCKS = tuple(threading.Lock() for _ in range(64))


def append(root: str, name: str, offset: int, data: bytes, most_bytes: int) -> int:
    """Writes the new part of a piece of a log; returns the number of bytes of the log that have arrived.

    `name`: below `root`; its folder is created. A piece that begins behind the end is rejected and sent again.
    `most_bytes`: for all logs in that folder. Blocks. Raises OSError.
    """
    folder = os.path.dirname(name)
    with _LOCKS[hash((root, folder)) % len(_LOCKS)]:
        if folder:
            foreign_files.make_folder(root, folder)
        come = _append(root, name, offset, data)
        if _total(root, folder) > most_bytes:
            _leave_out(root, name)
        return come


def size(root: str, name: str) -> int:
    """The number of bytes of a log that have arrived. Blocks. Raises OSError."""
    return foreign_files.size(root, name) + _left_out(root, name)


def _append(root: str, name: str, offset: int, data: bytes) -> int:
    with Descriptor(foreign_files.open_file(root, name, os.O_WRONLY | os.O_CREAT)) as file:
        there = os.fstat(file).st_size
        come = there + _left_out(root, name)
        rest = data[come - offset :] if offset <= come else b""
        return come + os.pwrite(file, rest, there) if rest else come


def _left_out(root: str, name: str) -> int:
    """The difference between arrived bytes and a file's size; its sentence counts as additional bytes."""
    found = _LEFT_OUT.match(foreign_files.read(root, name, HEAD_BYTES, _SENTENCE_BYTES))
    return int(found[1]) - _SENTENCE_BYTES if found else 0


def _total(root: str, folder: str) -> int:
    with foreign_files.opened_folder(root, folder) as opened:
        names = [name for name in os.listdir(opened) if name.startswith(protocol.LOG_FILES)]
        return sum(os.stat(name, dir_fd=opened, follow_symlinks=False).st_size for name in names)


def _leave_out(root: str, name: str) -> None:
    """Halves a log around its middle; a short one is unchanged."""
    there = foreign_files.size(root, name)
    if there < _SHORTEST:
        return
    tail = max(HEAD_BYTES, there // 2 - HEAD_BYTES - _SENTENCE_BYTES)
    missing = there + _left_out(root, name) - HEAD_BYTES - tail
    draft = str(Path(name).with_name(f".{Path(name).name}.shorter"))
    writing = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with (
        Descriptor(foreign_files.open_file(root, name, os.O_RDONLY)) as source,
        Descriptor(foreign_files.open_file(root, draft, writing)) as target,
    ):
        _copy(source, target, 0, HEAD_BYTES)
        os.write(target, _SENTENCE.format(missing).encode())
        _copy(source, target, there - tail, tail)
    with foreign_files.opened_folder(root, os.path.dirname(name)) as opened:
        os.replace(os.path.basename(draft), os.path.basename(name), src_dir_fd=opened, dst_dir_fd=opened)


def _copy(source: int, target: int, start: int, count: int) -> None:
    end = start + count
    while start < end and (sent := os.sendfile(target, source, start, end - start)):
        start += sent
