"""How many files the daemon may have open at a time."""

from __future__ import annotations

import resource

#: Each experiment at work takes about ten. Keeper, tuners and jobs inherit the limit, and there are programs that go
#: through all numbers below it, so it is not the million that some systems allow.
WANTED = 8192


def allow_many() -> None:
    """Most systems let a process have 1024, and more if it asks. What is more already stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
