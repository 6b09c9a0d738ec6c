"""Reports on standard error that a daemon does not answer, while a call waits for it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds until a call is checked on; seconds that the daemon then has to answer something simple.
SILENT_S, PROBE_S = 2.0, 1.0


@contextmanager
def reported(find_trouble: Callable[[], str]) -> Iterator[None]:
    """Run `find_trouble` every `SILENT_S` in a thread during the block, and print its first message."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(SILENT_S):
            if (sentence := find_trouble()) and not is_over.is_set():
                print(sentence, file=sys.stderr, flush=True)
                return

    threading.Thread(target=watch, name="silence", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
