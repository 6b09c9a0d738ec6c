"""The address of this daemon for clients: its control socket, and the pointer file in the data directory.

Both may be removed while the daemon runs: the socket's folder goes at every log-out. The daemon then could not be
reached, nor another one be started, so both are checked regularly and made again.

`make_way` ends a daemon that `nnictl` started in the background, in favour of one that is to stay and continues its
experiments.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from nni_manager import __version__
from nni_manager.app.listening.listeners import Listeners
from nni_manager.app.listening.ports import reserve
from nni_manager.client import address
from nni_manager.client.address import POINTER_FILE, Address
from nni_manager.client.data_directory import is_taken
from nni_manager.client.manager_client import ManagerClient
from nni_manager.config.settings import Settings
from nni_manager.domain.errors import AlreadyOwned, NniManagerError
from nni_manager.platform_kit.tasks import ended
from nni_manager.store.folder import Ownership
from trial_runner.wire import foreign_files

log = logging.getLogger(__name__)

#: Seconds between two checks.
LOOK_S = 2.0
#: Seconds that a daemon which is starting is waited for, before it is asked to make way; seconds between two looks.
_STARTS_S, _LOOK_START_S = 5.0, 0.1


class DaemonAddress:
    """`lock`: of the data directory. `socket`: returns the current path for the control socket. `on_homeless`: called
    when the data directory was moved, deleted or replaced; the daemon is then to end."""

    def __init__(
        self,
        listeners: Listeners,
        data_directory: Path,
        lock: Ownership,
        socket: Callable[[], Path],
        on_homeless: Callable[[], None],
    ) -> None:
        self._listeners = listeners
        self._lock = lock
        self._on_homeless = on_homeless
        self._pointer = data_directory / POINTER_FILE
        self._socket = socket
        self._trouble = ""
        #: The pointer file could not be written at the start; its content is an earlier daemon's.
        self._is_written_late = False

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """A context in which the daemon can be reached. Raises OSError when the socket cannot be opened; a pointer file
        that cannot be written yet, as on a full disk, is written later."""
        await self._listeners.open_control(self._socket())
        try:
            self._write()
        except OSError as error:
            self._is_written_late = True
            self._note(error)
        watching = asyncio.create_task(self._watch(), name="daemon_address")
        try:
            yield
        finally:
            await ended(watching)
            with suppress(OSError):
                if self._lock.is_in_place:  # else it is another daemon's
                    self._pointer.unlink(missing_ok=True)

    async def look(self) -> None:
        """Restores a missing socket or pointer file; logs once why it cannot."""
        if not self._lock.is_in_place:
            log.error("the data directory %s was moved, deleted or exchanged: the daemon ends", self._pointer.parent)
            return self._on_homeless()
        try:
            is_lost = not self._listeners.is_control_there()
            if is_lost:
                await self._listeners.open_control(self._socket())
                log.warning(
                    "the control socket was gone, and is %s now", self._listeners.control, extra={"action": "listener"}
                )
            if is_lost or self._is_written_late or not self._pointer.exists():
                self._write()
            self._trouble = ""
        except (OSError, NniManagerError) as error:
            self._note(error)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    def _note(self, error: Exception) -> None:
        if str(error) != self._trouble:
            log.error("clients cannot find this daemon: %s; it is tried again", error, extra={"action": "listener"})
        self._trouble = str(error)

    def _write(self) -> None:
        entry = {"socket": str(self._listeners.control), "pid": os.getpid(), "version": __version__}
        folder = os.path.realpath(self._pointer.parent)
        foreign_files.write_whole(folder, self._pointer.name, json.dumps(entry).encode())
        self._is_written_late = False


def make_way(settings: Settings, *, listen: bool) -> bool:
    """Asks that daemon to end; returns whether it will. `listen`: our port must be available before it is ended.

    Blocks. Raises AlreadyOwned or InvalidInput for an unavailable port.
    """
    found = _find_started(settings.data_dir)
    if found is None:
        return False
    client = ManagerClient(found)
    try:
        daemon = client.daemon()
    except NniManagerError:  # taking the lock reports its owner
        return False
    if not daemon["endsByItself"]:
        return False
    if listen:
        _require_port(settings, [str(one["address"]) for one in daemon["listeners"]])
    log.info("taking over from process %d, which nnictl started", daemon["pid"], extra={"action": "take over"})
    client.stop_daemon()
    return True


def _find_started(data_dir: Path) -> Address | None:
    """The address of the daemon; one that is starting is waited for. None: none runs, or it stays out of reach."""
    deadline = time.monotonic() + _STARTS_S
    while (found := address.find(data_dir)) is None and is_taken(data_dir) and time.monotonic() < deadline:
        time.sleep(_LOOK_START_S)
    return found


def _require_port(settings: Settings, addresses: list[str]) -> None:
    if settings.port and any(text.rpartition(":")[2].partition("/")[0] == str(settings.port) for text in addresses):
        raise AlreadyOwned(
            f"port {settings.port} is an experiment's own, which stays there; choose another with --port"
        )
    reserve(settings.host, settings.port).give_back()
