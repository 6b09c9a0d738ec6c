"""The address of this daemon for clients: its control socket, and the pointer file in the data directory.

Both may be removed while the daemon runs; logout removes the socket's folder. The daemon would then be unreachable, and
no other could start. So both are checked regularly and restored.

`make_way` ends a daemon that `nnictl` started in the background, so that a permanent one can continue its experiments.
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
    """The control socket and pointer file of this daemon.

    `lock`: of the data directory. `socket`: returns the current path for the control socket. `on_homeless`: called when
    the data directory was moved, deleted or replaced; the daemon must then end.
    """

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
        """A context in which the daemon is reachable. Raises OSError if the socket cannot be opened.

        A pointer file that cannot be written yet, for example on a full disk, is written later.
        """
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
                if self._lock.is_in_place:  # else it belongs to another daemon
                    self._pointer.unlink(missing_ok=True)

    async def look(self) -> None:
        """Restore a missing socket or pointer file; log a failure once."""
        if not self._lock.is_in_place:
            log.error("the data directory %s was moved, deleted or replaced: the daemon ends", self._pointer.parent)
            return self._on_homeless()
        try:
            is_lost = not self._listeners.is_control_there()
            if is_lost:
                await self._listeners.open_control(self._socket())
                log.warning(
                    "the control socket was missing; it is now %s",
                    self._listeners.control,
                    extra={"action": "listener"},
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
            log.error("clients cannot find this daemon: %s; it tries again", error, extra={"action": "listener"})
        self._trouble = str(error)

    def _write(self) -> None:
        entry = {"socket": str(self._listeners.control), "pid": os.getpid(), "version": __version__}
        folder = os.path.realpath(self._pointer.parent)
        foreign_files.write_whole(folder, self._pointer.name, json.dumps(entry).encode())
        self._is_written_late = False


def make_way(settings: Settings, *, listen: bool) -> bool:
    """Ask that daemon to end; return whether it will. `listen`: require that our port is available first.

    Blocks. Raises AlreadyOwned or InvalidInput for an unavailable port.
    """
    found = _find_started(settings.data_dir)
    if found is None:
        return False
    client = ManagerClient(found)
    try:
        daemon = client.daemon()
    except NniManagerError:  # taking the lock then reports its owner
        return False
    if not daemon["endsByItself"]:
        return False
    if listen:
        _require_port(settings, [str(one["address"]) for one in daemon["listeners"]])
    log.info("taking over from process %d, which nnictl started", daemon["pid"], extra={"action": "take over"})
    client.stop_daemon()
    return True


def _find_started(data_dir: Path) -> Address | None:
    """The address of the daemon, possibly after its start; None if none runs or it stays unreachable."""
    deadline = time.monotonic() + _STARTS_S
    while (found := address.find(data_dir)) is None and is_taken(data_dir) and time.monotonic() < deadline:
        time.sleep(_LOOK_START_S)
    return found


def _require_port(settings: Settings, addresses: list[str]) -> None:
    if settings.port and any(text.rpartition(":")[2].partition("/")[0] == str(settings.port) for text in addresses):
        raise AlreadyOwned(f"port {settings.port} belongs to an experiment; choose another with --port")
    reserve(settings.host, settings.port).give_back()
