"""Which files the daemon has open from the start, and how many it may have at a time."""

from __future__ import annotations

import os
import resource

#: Each experiment at work takes about ten. Keeper, tuners and jobs inherit the limit, and there are programs that go
#: through all numbers below it, so it is not the million that some systems allow.
WANTED = 8192


def fill_standard_streams() -> None:
    """Where one of 0, 1 and 2 is closed, the next file of ours would take its place, and a child would get that."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free


def allow_many() -> None:
    """Most systems let a process have 1024, and more if it asks. What is more already stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
