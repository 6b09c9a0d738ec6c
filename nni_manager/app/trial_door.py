"""The trial listener's door: open while an experiment needs it, and at the same address when the daemon comes back."""

from __future__ import annotations

import asyncio
import json
import logging
import socket

from starlette.types import ASGIApp

from nni_manager.app.doors import Doors, Reserved, reserve
from nni_manager.config.settings import Settings
from nni_manager.domain.errors import AlreadyOwned, InvalidInput, PlatformUnavailable
from nni_manager.platform_kit.runner_token import RunnerTokens

log = logging.getLogger(__name__)

_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 (named, not bound)


class TrialDoor:
    """A `scheduler.runner_door.RunnerDoor`. `allowed`: False with ``--no-listen``."""

    def __init__(self, settings: Settings, *, allowed: bool) -> None:
        self.tokens = RunnerTokens.of(settings.data_dir)
        self._settings = settings
        self._allowed = allowed
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
            raise InvalidInput(
                "trials of this platform report over TCP, and this daemon was started with --no-listen:"
                " start it without"
            )
        doors, application = await asyncio.shield(self._doors)
        async with self._opening:
            self._users.add(experiment_id)
            if self._reserved is None:
                self._reserved = await asyncio.to_thread(self._reserve)
                await doors.open_trial_listener(self._reserved, application)
                log.info("trial listener on %s", self._reserved.address, extra={"action": "door"})

    async def close(self, experiment_id: str) -> None:
        async with self._opening:
            self._users.discard(experiment_id)
            if self._reserved is not None and not self._users:
                doors, _ = await self._doors
                await doors.close_port(self._reserved)
                self._reserved = None

    def url(self, manager_ip: str) -> str:
        assert self._reserved is not None, "opened before the first job is submitted"
        host = manager_ip or self._settings.trial_host
        if host in _EVERYWHERE:
            host = _own_address()
        return f"http://{f'[{host}]' if ':' in host else host}:{self._reserved.port}"

    def _reserve(self) -> Reserved:
        """The stored address, as runners of an earlier daemon know it; else the configured port, else any free one."""
        try:
            if (stored := self._stored_port()) is not None:
                return reserve(self._settings.trial_host, stored)
            wanted = self._settings.trial_port or self._settings.port + 1
            try:
                found = reserve(self._settings.trial_host, wanted)
            except AlreadyOwned:
                if self._settings.trial_port:
                    raise
                found = reserve(self._settings.trial_host, 0)
        except (AlreadyOwned, InvalidInput) as error:
            raise PlatformUnavailable(f"the trial listener cannot be opened: {error}") from None
        draft = self._file.with_suffix(".tmp")
        draft.write_text(json.dumps({"port": found.port}))
        draft.replace(self._file)
        return found

    def _stored_port(self) -> int | None:
        try:
            port = json.loads(self._file.read_text())["port"]
        except (OSError, ValueError, KeyError):
            return None
        return port if isinstance(port, int) else None


def _own_address() -> str:
    """The address of the way out of this machine; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
