"""Why a file system takes no more files: the same error stands for no free bytes and for no free inodes."""

import errno
import os


def reason(error: OSError, place: object = "") -> str:
    """The error's text. `place`: a path that was written, where the error names none."""
    path = str(error.filename or place)
    if error.errno == errno.ENOSPC and path and lacks_inodes(path):
        return no_inodes(path)
    return error.strerror or str(error)


def no_inodes(path: str) -> str:
    return "the file system of {} has no free inodes: remove files there".format(path)


def lacks_inodes(path: str) -> bool:
    """Whether the file system of a path, which need not exist, has a table of inodes, and it is full."""
    path = os.path.abspath(path)
    while True:
        try:
            found = os.statvfs(path)
            return found.f_files > 0 and found.f_favail == 0
        except FileNotFoundError:
            path = os.path.dirname(path)
        except OSError:
            return False
