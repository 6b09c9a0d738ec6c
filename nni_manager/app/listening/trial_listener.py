"""The trial listener's socket and port, which is stored for the next daemon: running jobs report to it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from starlette.types import ASGIApp

from nni_manager.app.listening import trial_tls
from nni_manager.app.listening.listeners import Listeners
from nni_manager.app.listening.ports import Reserved, http_address, reserve, reserve_in_thread
from nni_manager.config.settings import Settings
from nni_manager.domain.errors import AlreadyOwned, InvalidInput, PlatformUnavailable
from nni_manager.domain.experiment import ExperimentWarning
from nni_manager.scheduler.changes import DaemonWarnings
from nni_manager.scheduler.turns.trial_listener import RunnerTokens
from trial_runner.wire import foreign_files


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPort:
    port: int
    #: Experiments with jobs that may report to it.
    experiments: frozenset[str]
    #: The expected port; 0: any.
    expected: int


class TrialPortFile:
    """The file with the listener's port, kept after the daemon ended or was killed. Blocks."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> StoredPort | None:
        """The stored port, or None if the file is missing or invalid."""
        try:
            entry = json.loads(self._path.read_text(encoding="utf-8"))
            port, experiments, expected = int(entry["port"]), frozenset(entry["experiments"]), int(entry["expected"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return StoredPort(port=port, experiments=experiments, expected=expected) if 0 < port < 65536 else None

    def write(self, port: int, experiments: Collection[str], expected: int) -> None:
        """Raises OSError."""
        entry = {"port": port, "experiments": sorted(experiments), "expected": expected}
        foreign_files.write_whole(str(self._path.parent), self._path.name, json.dumps(entry).encode())

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


log = logging.getLogger(__name__)

#: Warning codes.
_MOVED = "TRIAL_PORT_MOVED"
_CERTIFICATE = "TRIAL_CERTIFICATE"
#: Wildcard address → an address of the same family on another machine.
_EVERYWHERE = {"0.0.0.0": "192.0.2.1", "::": "2001:db8::1"}  # noqa: S104 (named, not bound)


class TrialListenerSocket:
    """The `TrialListener` of the scheduler, as a socket. `allowed`: False with ``--no-listen``."""

    def __init__(
        self, settings: Settings, warnings: DaemonWarnings, *, allowed: bool, neighbour: Callable[[], int] | None = None
    ) -> None:
        """`warnings`: receives the warning about an unexpected port. `neighbour`: it opens next to this port by
        default; 0: none; None: the service's.

        Raises OSError if the secret for tokens cannot be read or created, InvalidInput for an invalid certificate.
        """
        self.tokens = RunnerTokens.of(settings.data_dir)
        self._tls = trial_tls.of(settings)
        self.authority = trial_tls.authority_of(settings, self._tls)
        self._settings = settings
        self._warnings = warnings
        self._allowed = allowed
        self._neighbour = neighbour or (lambda: settings.port)
        self._file = TrialPortFile(settings.data_dir / "trial-listener.json")
        #: Experiments that need it open, even if it could not be opened.
        self._users: set[str] = set()
        #: Experiments in the file.
        self._recorded: frozenset[str] = frozenset()
        self._is_at_work: Callable[[str], bool] = lambda _: True
        self._listeners: asyncio.Future[tuple[Listeners, ASGIApp]] = asyncio.get_running_loop().create_future()
        self._opening = asyncio.Lock()
        self._reserved: Reserved | None = None
        #: The expected port; 0: any.
        self._expected = 0

    def bind(self, listeners: Listeners, application: ASGIApp, is_at_work: Callable[[str], bool]) -> None:
        """Set the daemon's listeners and the application to serve; `open` waits for this.

        `is_at_work`: whether jobs of an experiment may run; must know all experiments of earlier daemons.
        """
        self._is_at_work = is_at_work
        self._listeners.set_result((listeners, application))

    async def open(self, experiment_id: str) -> None:
        if not self._allowed:
            raise PlatformUnavailable(
                "trials of this platform report over TCP, but this daemon was started with --no-listen;"
                " start it without that option",
                refused=True,
            )
        listeners, application = await asyncio.shield(self._listeners)
        async with self._opening:
            self._users.add(experiment_id)
            await self._refresh_certificate()
            if self._reserved is None:
                reserved = await self._reserve()
                await listeners.open_port("trials", reserved, application, self._tls.context if self._tls else None)
                self._reserved = reserved
                log.info("trial listener on %s", reserved.address, extra={"action": "listener"})
                if moved := self._moved():
                    log.warning("%s", moved.message, extra={"action": "listener"})
            elif experiment_id not in self._recorded:
                await self._record_user(self._reserved.port)
            if moved := self._moved():
                self._warnings.set(experiment_id, moved)
            self._warn_of_certificate(experiment_id)

    async def close(self, experiment_id: str) -> None:
        async with self._opening:
            if experiment_id not in self._users:
                return
            self._users.discard(experiment_id)
            self._warnings.clear(experiment_id, _MOVED)
            self._warnings.clear(experiment_id, _CERTIFICATE)
            if self._users:
                return
            self._recorded = frozenset()
            if self._reserved is not None:
                listeners, _ = await self._listeners
                await listeners.close_port(self._reserved)
                self._reserved = None
            self._file.forget()

    def url(self, manager_ip: str) -> str:
        assert self._reserved is not None, "opened before the first job is submitted"
        if self._settings.trial_url:
            return self._settings.trial_url.rstrip("/")
        return http_address(host_of(self._settings, manager_ip), self._reserved.port, tls=self._tls is not None)

    async def _refresh_certificate(self) -> None:
        """Use a renewed certificate from now on; for an unusable one, warn and keep the old one."""
        if self._tls is not None and not self._tls.is_fresh:
            with suppress(InvalidInput):
                await asyncio.to_thread(self._tls.refresh)
                self.authority = trial_tls.authority_of(self._settings, self._tls)

    def _warn_of_certificate(self, experiment_id: str) -> None:
        if self._tls is None or self._settings.trial_url:
            return
        if trouble := self._tls.trouble(host_of(self._settings, "")):
            self._warnings.set(experiment_id, ExperimentWarning(code=_CERTIFICATE, message=trouble))
        else:
            self._warnings.clear(experiment_id, _CERTIFICATE)

    async def _reserve(self) -> Reserved:
        """Raises PlatformUnavailable."""
        try:
            # look up the neighbour here, because the loop may open endpoints in the meantime
            found = await reserve_in_thread(partial(self._choose, self._neighbour()))
        except (AlreadyOwned, InvalidInput, OSError) as error:
            raise PlatformUnavailable(f"the trial listener cannot be opened: {error}", refused=True) from None
        return found if self._tls is None else replace(found, address=f"https{found.address.removeprefix('http')}")

    async def _record_user(self, port: int) -> None:
        """Raises PlatformUnavailable."""
        try:
            await asyncio.to_thread(self._record, port)
        except OSError as error:
            raise PlatformUnavailable(f"the trial listener's port cannot be stored: {error}", refused=True) from None

    def _choose(self, neighbour: int) -> Reserved:
        """The stored port while jobs of an earlier daemon may use it; else the configured one, else any free one."""
        stored = self._file.read()
        self._expected = self._settings.trial_port or (neighbour + 1 if 0 < neighbour < 65535 else 0)
        is_known = stored is not None and any(map(self._is_at_work, stored.experiments))
        found = self._take_again(stored) if stored and is_known else self._take_new()
        try:
            self._record(found.port)
        except OSError:
            found.give_back()
            raise
        return found

    def _record(self, port: int) -> None:
        """Raises OSError."""
        users = frozenset(self._users)
        self._file.write(port, users, self._expected)
        self._recorded = users

    def _take_again(self, stored: StoredPort) -> Reserved:
        """Take the stored port, because jobs that report there would lose their results.

        Raises AlreadyOwned if another process has it, unless the user chose another port.
        """
        try:
            found = self._take(stored.port)
        except AlreadyOwned as error:
            holder = str(error).partition("; ")[0]
            if self._settings.trial_port not in (0, stored.port):
                log.warning("%s; running jobs can no longer report", holder, extra={"action": "listener"})
                return self._take_new()
            raise AlreadyOwned(
                f"{holder}, but running jobs report there; end that process, or start the daemon with another"
                " --trial-port, which those jobs cannot find"
            ) from None
        self._expected = self._settings.trial_port or stored.expected
        return found

    def _take_new(self) -> Reserved:
        """Take the expected port, or any free one if that was only a default: no job knows it yet."""
        try:
            return self._take(self._expected)
        except AlreadyOwned:
            if self._settings.trial_port:
                raise
            return self._take(0)

    def _moved(self) -> ExperimentWarning | None:
        """The warning about an unexpected port, which a firewall may block; None if it is as expected."""
        assert self._reserved is not None, "it is open"
        expected, port = self._expected, self._reserved.port
        if expected in (0, port):
            return None
        message = (
            f"the trial listener is on port {port} instead of {expected}, which was in use: trials behind a firewall or"
            f" a published port cannot report. Free port {expected} or choose one"
            " with --trial-port, and restart the daemon when no trials run"
        )
        return ExperimentWarning(code=_MOVED, message=message)

    def _take(self, port: int) -> Reserved:
        return reserve(self._settings.trial_host, port, options="trial-")


def host_of(settings: Settings, manager_ip: str) -> str:
    """The host name or address at which runners reach this machine."""
    host = manager_ip or settings.trial_host
    return _own_address(_EVERYWHERE[host]) if host in _EVERYWHERE else host


def check(settings: Settings) -> None:
    """Require different ports for service and trial listener. Raises InvalidInput."""
    trial_tls.require_url(settings.trial_url)
    if settings.port and settings.port == settings.trial_port:
        raise InvalidInput(
            f"--port and --trial-port (port and trialPort) are both {settings.port}; choose another for one of them"
        )


def _own_address(elsewhere: str) -> str:
    """The local address that a connection to `elsewhere` would have; nothing is sent."""
    family, nowhere = (socket.AF_INET6, "::1") if ":" in elsewhere else (socket.AF_INET, "127.0.0.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((elsewhere, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return nowhere
