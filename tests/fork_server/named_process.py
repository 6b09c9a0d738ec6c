"""What `/proc` tells of a process after it was forked.

The kernel shows command line and environment of the last start of a program; tests, and the product, find processes by
these.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_NAME, _PR_SET_MM, _PR_SET_MM_MAP = 15, 35, 14
#: Of `/proc/PID/stat`, as proc(5) counts: code, data, start of the heap.
_CODE, _DATA, _STACK = (26, 27), (45, 46, 47), 28

#: The kernel reads from here for as long as the process lives.
_told: list[mmap.mmap] = []


def name(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """From now on the kernel shows these. Raises OSError where it does not let itself be told (Linux before 3.18, or
    built without `CHECKPOINT_RESTORE`)."""
    words = b"".join(os.fsencode(word) + b"\0" for word in command)
    variables = b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in environment.items())
    memory = mmap.mmap(-1, len(words) + len(variables), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(words + variables)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _set_map(start, start + len(words), start + len(words) + len(variables))
    _told.append(memory)
    _libc.prctl(_PR_SET_NAME, os.fsencode(os.path.basename(command[0]))[:15], 0, 0, 0)


def _set_map(start: int, middle: int, end: int) -> None:
    """Command line from `start` to `middle`, environment from there to `end`; all else stays as it is."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    here = [int(fields[number - 3]) for number in (*_CODE, *_DATA)]
    _libc.sbrk.restype = ctypes.c_void_p
    places = [*here, _libc.sbrk(0), int(fields[_STACK - 3]), start, middle, middle, end]
    told = struct.pack("11QQIi", *places, 0, 0, -1)
    if _libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, told, len(told), 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel keeps the command line")
