"""Locks on whole files, which end with the process that holds them."""

import fcntl


def try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Takes a lock without waiting; False: another process has one that excludes it.

    `kind`: `fcntl.LOCK_EX` or `fcntl.LOCK_SH`. Raises OSError of a file system without locks.
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
