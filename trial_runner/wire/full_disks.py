"""Why a file system accepts no more files: no free bytes and no free inodes cause the same error."""

import errno
import os
from typing import Optional

#: Number of folders and files that a trial needs at most, before its command creates others.
LEAST_INODES = 16


def reason(error: OSError, place: object = "") -> str:
    """The error's text. `place`: the written path, if the error has none."""
    path = str(place or error.filename or "")
    found = no_inodes(path) if error.errno == errno.ENOSPC and path else ""
    return found or error.strerror or str(error)


def no_inodes(path: str) -> str:
    """The sentence for a full file system; empty: it has space. `path` need not exist."""
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
    return "the file system of {} has {} free inodes: delete files there".format(path, free or "no")


def free_inodes(found: os.statvfs_result) -> Optional[int]:
    """Free inodes. None: the file system creates inodes dynamically."""
    return found.f_favail if found.f_files > 0 else None
