"""Reads and writes the folders of jobs on a machine without a keeper; the manager sends this file as text.

It runs on a login node whose storage the jobs' nodes share, with any Python 3.7 and nothing installed, and ends after
one request. stdin: a line of JSON, then data. stdout: lines of JSON; the last one has ``done``. Requests:

* ``{"verb": "read", "root", "jobs": {folder: {file: offset}}, "most"}``: the new bytes of these folders' outboxes,
  logs and reports, at most about `most` bytes: ``{"folder", "file", "offset", "data" (base64)}``. The report of the end
  comes whole, after everything that was written before it, and only if that was all sent; ``done.more``: not all was.
* ``{"verb": "look", "root", "files"}``: ``done.sizes``: file → its size in bytes; missing ones are left out.
* ``{"verb": "write", "root", "files": [[file, size]]}``, then the bytes of the files, one after the other: each is
  written whole; missing folders are made for this user only.
* ``{"verb": "remove", "root", "files"}``: removes files below `root`; `files` may be patterns.

Paths are relative to `root`. A failure is ``{"error": sentence}``.
"""

import base64
import glob
import json
import os
import stat
import sys
from typing import Any, Dict, List, Optional

Request = Dict[str, Any]

_LOGS = ("stdout", "stderr", "trial.log", "slurm.err")
_FIRST, _LAST = "runner.json", "exit.json"
_OUTBOXES, _METRICS = "outbox", ".nni/metrics"
_REPORT_BYTES = 1024 * 1024
_PIECE_BYTES = 1024 * 1024
_MOST_FILES = 1000


def main() -> int:
    request = json.loads(sys.stdin.buffer.readline().decode())
    verbs = {"read": _read, "look": _look, "write": _write, "remove": _remove}
    try:
        os.umask(0o077)
        done = verbs[request["verb"]](request)
    except OSError as error:
        _tell({"error": "{}: {}".format(error.filename or request["root"], error.strerror)})
        return 1
    _tell({"done": done})
    return 0


def _read(request: Request) -> Request:
    left = request["most"]
    for folder, offsets in request["jobs"].items():
        if left <= 0:
            return {"more": True}
        left -= _read_job(request["root"], folder, offsets, left)
    return {"more": left <= 0}


def _read_job(root: str, folder: str, offsets: Dict[str, int], most: int) -> int:
    """The number of bytes that were sent."""
    path = os.path.join(root, folder)
    end = _whole(path, _LAST)  # before the data that it describes
    sent = 0
    start = _whole(path, _FIRST)
    if start is not None and len(start) != offsets.get(_FIRST):
        _tell_bytes(folder, _FIRST, 0, start)
        sent += len(start)
    for name in _names(path):
        offset = offsets.get(name, 0)
        is_whole = False
        while sent < most and not is_whole:
            data = _stretch(path, name, offset, min(_PIECE_BYTES, most - sent))
            is_whole = not data
            if is_whole and offset == 0 and name not in offsets and os.path.isfile(os.path.join(path, name)):
                _tell_bytes(folder, name, 0, data)  # it exists
            if data:
                _tell_bytes(folder, name, offset, data)
                offset += len(data)
                sent += len(data)
        if not is_whole:
            return max(sent, most)
    if end is not None and len(end) != offsets.get(_LAST):
        _tell_bytes(folder, _LAST, 0, end)
        sent += len(end)
    return sent


def _names(path: str) -> List[str]:
    found = [*_LOGS, _METRICS]
    for folder, folders, files in os.walk(os.path.join(path, _OUTBOXES)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = os.path.relpath(folder, path)
        found += [os.path.join(below, name) for name in sorted(files) if not name.startswith(".")]
        if len(found) > _MOST_FILES:
            break
    return [name for name in found[:_MOST_FILES] if name.isprintable()]


def _stretch(path: str, name: str, offset: int, size: int) -> bytes:
    try:
        descriptor = os.open(os.path.join(path, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return os.pread(descriptor, size, offset)
    finally:
        os.close(descriptor)


def _whole(path: str, name: str) -> Optional[bytes]:
    return _stretch(path, name, 0, _REPORT_BYTES) or None


def _look(request: Request) -> Request:
    sizes = {}
    for name in request["files"]:
        try:
            sizes[name] = os.stat(os.path.join(request["root"], name)).st_size
        except OSError:
            continue
    return {"sizes": sizes}


def _write(request: Request) -> Request:
    for name, size in request["files"]:
        path = os.path.join(request["root"], name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        draft = "{}.{}.tmp".format(path, os.getpid())
        try:
            with open(draft, "wb") as file:
                left = size
                while left:
                    data = sys.stdin.buffer.read(min(left, _PIECE_BYTES))
                    if not data:
                        raise OSError(5, "its bytes did not arrive", path)
                    file.write(data)
                    left -= len(data)
            os.replace(draft, path)
        finally:
            if os.path.exists(draft):
                os.unlink(draft)
    return {}


def _remove(request: Request) -> Request:
    for pattern in request["files"]:
        for path in glob.glob(os.path.join(glob.escape(request["root"]), pattern)):
            os.unlink(path)
    return {}


def _tell_bytes(folder: str, name: str, offset: int, data: bytes) -> None:
    _tell({"folder": folder, "file": name, "offset": offset, "data": base64.b64encode(data).decode()})


def _tell(message: Request) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
