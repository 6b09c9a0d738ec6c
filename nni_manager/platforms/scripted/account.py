"""The account that experiments share: one login and one pace for all of them, and the cluster's own log of both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nni_manager.platform_kit.connections import Connection
from nni_manager.platform_kit.contract import Host
from nni_manager.platforms.scripted.config import Account
from nni_manager.web_services.pacing import Pacing


class AccountConnection(Connection):
    """The connection of an account. `settings`: those of the first experiment."""

    def __init__(self, key: str, settings: Account) -> None:
        super().__init__(key)
        self._pacing = Pacing(calls=settings.calls, per_s=settings.per)
        self._log = Path(settings.log) if settings.log else None

    async def open(self) -> None:
        await self._write("login")
        self.note_up()

    async def turn(self, verb: str) -> None:
        """Waits until the cluster may be asked."""
        await self._pacing.turn()
        await self._write(verb)

    async def _write(self, what: str) -> None:
        """Writes a line of the cluster's log: seconds of a monotonic clock, and the verb."""
        if self._log is not None:
            await asyncio.to_thread(_append, self._log, f"{time.monotonic():.4f} {what}\n")


class AccountUse:
    """One service's use of the account. Raises OSError where the log cannot be written."""

    def __init__(self, settings: Account | None, host: Host) -> None:
        self._settings = settings
        self._host = host
        self._connection: AccountConnection | None = None

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """A context in which the account is used."""
        if (settings := self._settings) is None:
            yield
            return
        key, owner = f"scripted://{settings.name}", f"{self._host.experiment_id}/{self._host.service}"
        async with self._host.connections.lease(key, owner, lambda: AccountConnection(key, settings)) as lease:
            self._connection = lease.connection
            try:
                yield
            finally:
                self._connection = None

    async def turn(self, verb: str) -> None:
        if self._connection is not None:
            await self._connection.turn(verb)


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as log:
        log.write(line)
