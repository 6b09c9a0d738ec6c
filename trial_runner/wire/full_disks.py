"""Why a file system takes no more files: the same error stands for no free bytes and for no free inodes."""

import errno
import os
from typing import Optional

#: What a trial needs at most for its folders and files, before its command makes others.
LEAST_INODES = 16


def reason(error: OSError, place: object = "") -> str:
    """The error's text. `place`: a path that was written, where the error names none."""
    path = str(place or error.filename or "")
    found = no_inodes(path) if error.errno == errno.ENOSPC and path else ""
    return found or error.strerror or str(error)


def no_inodes(path: str) -> str:
    """The sentence for a file system that takes no more files; empty: it does. `path` need not exist."""
    place = os.path.abspath(path)
    while True:
        try:
            free = free_inodes(os.statvfs(place))
        except FileNotFoundError:
            place = os.path.dirname(place)
        except OSError:
            return ""
        else:
            return "" if free is None or free >= LEAST_INODES else few_inodes(path, free)


def few_inodes(path: str, free: int) -> str:
    return "the file system of {} has {} free inodes: remove files there".format(path, free or "no")


def free_inodes(found: os.statvfs_result) -> Optional[int]:
    """None: the file system has no table of them, and makes them as it needs them."""
    return found.f_favail if found.f_files > 0 else None
