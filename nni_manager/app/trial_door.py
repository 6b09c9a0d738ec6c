"""The trial listener's door: open while an experiment needs it, and at the same address when the daemon comes back."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable

from starlette.types import ASGIApp

from nni_manager.app.doors import Doors
from nni_manager.app.ports import Reserved, http_address, reserve, reserve_in_thread
from nni_manager.config.settings import Settings
from nni_manager.domain.errors import AlreadyOwned, InvalidInput, PlatformUnavailable
from nni_manager.platform_kit.runner_token import RunnerTokens

log = logging.getLogger(__name__)

#: Addresses that stand for all of this machine's → an address of the same family somewhere else.
_EVERYWHERE = {"0.0.0.0": "192.0.2.1", "::": "2001:db8::1"}  # noqa: S104 (named, not bound)


class TrialDoor:
    """A `scheduler.runner_door.RunnerDoor`. `allowed`: False with ``--no-listen``."""

    def __init__(self, settings: Settings, *, allowed: bool, neighbour: Callable[[], int] | None = None) -> None:
        """`neighbour`: the port beside which it opens unless told otherwise; 0: none; by default the service's.

        Raises OSError when the secret behind the tokens cannot be read or made.
        """
        self.tokens = RunnerTokens.of(settings.data_dir)
        self._settings = settings
        self._allowed = allowed
        self._neighbour = neighbour or (lambda: settings.port)
        #: There while the door is open, and after a daemon that ended or was killed: running jobs know the address.
        self._file = settings.data_dir / "trial-listener.json"
        self._users: set[str] = set()
        self._doors: asyncio.Future[tuple[Doors, ASGIApp]] = asyncio.get_running_loop().create_future()
        self._opening = asyncio.Lock()
        self._reserved: Reserved | None = None

    def bind(self, doors: Doors, application: ASGIApp) -> None:
        """What the door is one of, and what it serves; whoever wants it open waits for this."""
        self._doors.set_result((doors, application))

    async def open(self, experiment_id: str) -> None:
        if not self._allowed:
            raise PlatformUnavailable(
                "trials of this platform report over TCP, and this daemon was started with --no-listen:"
                " start it without",
                refused=True,
            )
        doors, application = await asyncio.shield(self._doors)
        async with self._opening:
            if self._reserved is None:
                reserved = await self._reserve()
                await doors.open_trial_listener(reserved, application)
                self._reserved = reserved
                log.info("trial listener on %s", reserved.address, extra={"action": "door"})
            self._users.add(experiment_id)

    async def close(self, experiment_id: str) -> None:
        async with self._opening:
            self._users.discard(experiment_id)
            if self._reserved is not None and not self._users:
                doors, _ = await self._doors
                await doors.close_port(self._reserved)
                self._reserved = None
                self._file.unlink(missing_ok=True)

    def url(self, manager_ip: str) -> str:
        assert self._reserved is not None, "opened before the first job is submitted"
        host = manager_ip or self._settings.trial_host
        if host in _EVERYWHERE:
            host = _own_address(_EVERYWHERE[host])
        return http_address(host, self._reserved.port)

    async def _reserve(self) -> Reserved:
        """Raises PlatformUnavailable."""
        try:
            return await reserve_in_thread(self._choose)
        except (AlreadyOwned, InvalidInput, OSError) as error:
            raise PlatformUnavailable(f"the trial listener cannot be opened: {error}", refused=True) from None

    def _choose(self) -> Reserved:
        """The stored port, as runners of an earlier daemon know it; else the configured one; else any free one."""
        stored = self._stored_port()
        found = self._take(stored) if stored else self._take_new()
        try:
            draft = self._file.with_suffix(".tmp")
            draft.write_text(json.dumps({"port": found.port}), encoding="utf-8")
            draft.replace(self._file)
        except OSError:
            found.give_back()
            raise
        return found

    def _take_new(self) -> Reserved:
        """Beside the service or the first view; where that is taken, anywhere, as nobody knows the address yet."""
        if self._settings.trial_port:
            return self._take(self._settings.trial_port)
        neighbour = self._neighbour()
        try:
            return self._take(neighbour + 1 if 0 < neighbour < 65535 else 0)
        except AlreadyOwned:
            return self._take(0)

    def _take(self, port: int) -> Reserved:
        return reserve(self._settings.trial_host, port, options="trial-")

    def _stored_port(self) -> int | None:
        try:
            port = json.loads(self._file.read_text(encoding="utf-8"))["port"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return port if isinstance(port, int) and 0 < port < 65536 else None


def _own_address(elsewhere: str) -> str:
    """The address of the way out of this machine; nothing is sent."""
    family, nowhere = (socket.AF_INET6, "::1") if ":" in elsewhere else (socket.AF_INET, "127.0.0.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((elsewhere, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return nowhere
