"""Calls of the C library that Python has no name for. Some containers' Pythons are built without `ctypes`."""

import errno
import os
from typing import Union

try:
    import ctypes

    _libc = ctypes.CDLL(None, use_errno=True)
except (ImportError, OSError):  # what is static knows no other library
    _libc = None  # type: ignore[assignment]


def call(name: str, *arguments: Union[int, bytes]) -> int:
    """What it answers. Raises OSError when that is negative, or there is no way to call."""
    if _libc is None:
        raise OSError(errno.ENOSYS, "this Python has no ctypes")
    answer = int(getattr(_libc, name)(*arguments))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def overwrite_variable(name: bytes) -> None:
    """Where `/proc` shows what this process was started with: the memory that the kernel put the value into; Python has
    a copy of its own. A best effort."""
    if _libc is None:
        return
    _libc.getenv.restype = ctypes.c_void_p
    address = _libc.getenv(name)
    if address:
        ctypes.memset(address, ord("x"), len(ctypes.string_at(address)))
