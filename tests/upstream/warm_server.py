"""Runs in the Python of the real `nni`, and forks itself for each requested program."""

from __future__ import annotations

import gc
import os
import socket
import sys

from tests.fork_server import child
from tests.fork_server.server import serve
from tests.nni3 import IMPORTED
from tests.upstream.patience import give_patience


def main(listening: int) -> None:
    """`listening`: a descriptor. Our modules are already imported, and not on the path of programs."""
    del sys.path[0]
    exec(f"import {IMPORTED}", {})
    assert len(os.listdir("/proc/self/task")) == 1, "threads do not come along into a fork"
    gc.collect()
    gc.freeze()  # what is shared with the forks stays shared
    forked = serve(socket.socket(fileno=listening))
    if forked is not None:
        give_patience()
        order, descriptors = forked
        if paths := order.environment.get("PYTHONPATH"):
            sys.path[1:1] = paths.split(os.pathsep)
        child.run(order, descriptors)
