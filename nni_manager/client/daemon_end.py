"""Waits for the end of a daemon that ends with its last experiment."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import ExperimentStatus

if TYPE_CHECKING:
    from nni_manager.client.manager_client import ManagerClient

#: Seconds to wait for a daemon's end.
_PATIENCE_S = 10
#: Seconds between two checks whether the daemon is still about to end.
_LOOK_S = 0.5


@contextmanager
def waiting_for_daemon_end(client: ManagerClient, *, of_all: bool = False) -> Iterator[None]:
    """Wait, after a block that stops experiments, for a daemon that ends with the last one.

    Its keeper, socket and pointer file are then gone. `of_all`: the block stops all experiments, which ends the daemon
    even if none was open.
    """
    process = _process(client, of_all)
    try:
        yield
        if process is not None:
            _wait(process, client)
            with suppress(ChildProcessError):  # reap a child, so that it does not stay as a zombie
                os.waitid(os.P_PIDFD, process, os.WEXITED | os.WNOHANG)
    finally:
        if process is not None:
            os.close(process)


def _process(client: ManagerClient, of_all: bool) -> int | None:
    """A descriptor of the daemon's process; None if it does not end with this stop, or runs elsewhere.

    It is opened before the stop, because another process may get the id afterwards.
    """
    if not client.is_here:
        return None
    daemon = client.daemon()
    if not daemon["endsByItself"] or not (of_all or _has_work(client)):
        return None
    try:
        return os.pidfd_open(daemon["pid"])
    except OSError:  # in another container, the process has another id
        return None


def _has_work(client: ManagerClient) -> bool:
    try:
        return any(one["status"] != ExperimentStatus.STOPPED for one in client.experiments())
    except NniManagerError:  # it has ended, or is about to
        return False


def _wait(process: int, client: ManagerClient) -> None:
    """Wait for the end of the process; give up when the daemon has work again."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    deadline = time.monotonic() + _PATIENCE_S
    while not _has_work(client) and not poll.poll(_LOOK_S * 1000) and time.monotonic() < deadline:
        pass
