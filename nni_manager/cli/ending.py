"""The end of a daemon that was started for one command: whoever stops its last experiment sees it out."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nni_manager.cli import selection
from nni_manager.domain.errors import NniManagerError

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

#: Seconds after which a daemon that does not end is left to itself.
_PATIENCE_S = 10
#: Seconds between two looks whether it still is to end.
_LOOK_S = 0.5


@contextmanager
def seen_out(client: ManagerClient, *, of_all: bool = False) -> Iterator[None]:
    """Around the stop of experiments. When it is left, a daemon that ends with the last of them has ended, and with it
    its keeper, its socket and its pointer file.

    `of_all`: all are stopped, which ends the daemon even if none was open.
    """
    process = _process(client, of_all)
    try:
        yield
        if process is not None:
            _wait(process, client)
    finally:
        if process is not None:
            os.close(process)


def _process(client: ManagerClient, of_all: bool) -> int | None:
    """Opened before the stop, as the process id may be somebody else's after it. None: it does not end with this."""
    if not client.is_here:
        return None
    daemon = client.daemon()
    if not daemon["endsByItself"] or not (of_all or _has_work(client)):
        return None
    try:
        return os.pidfd_open(daemon["pid"])
    except OSError:  # in another container it has another id
        return None


def _has_work(client: ManagerClient) -> bool:
    try:
        return any(map(selection.is_open, client.experiments()))
    except NniManagerError:  # it has ended, or is about to
        return False


def _wait(process: int, client: ManagerClient) -> None:
    """Not for a daemon that has work, which somebody else may give it at any moment."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    deadline = time.monotonic() + _PATIENCE_S
    while not _has_work(client) and not poll.poll(_LOOK_S * 1000) and time.monotonic() < deadline:
        pass
