"""Drops root's right to ignore file modes, so that read-only files are read-only for its daemons, too."""

from __future__ import annotations

import ctypes
import os
import struct

_PR_CAPBSET_DROP = 24
#: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
_DROPPED = (1, 2)
_VERSION_3 = 0x20080522


def drop() -> None:
    """Drop it permanently for this process and its children; does nothing for other users. Raises OSError."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for number in _DROPPED:
        _check(libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0))
    header, data = ctypes.create_string_buffer(struct.pack("=Ii", _VERSION_3, 0)), ctypes.create_string_buffer(24)
    _check(libc.capget(header, data))
    sets = list(struct.unpack("=6I", data.raw[:24]))
    mask = sum(1 << number for number in _DROPPED)
    sets[:3] = [value & ~mask for value in sets[:3]]
    _check(libc.capset(header, ctypes.create_string_buffer(struct.pack("=6I", *sets))))


def _check(answer: int) -> None:
    if answer:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
