"""The trial listener's socket, and its port, kept for the next daemon: jobs that run know no other."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from starlette.types import ASGIApp

from nni_manager.app.listening import trial_tls
from nni_manager.app.listening.listeners import Listeners
from nni_manager.app.listening.ports import Reserved, http_address, reserve, reserve_in_thread
from nni_manager.config.daemon_settings.settings import Settings
from nni_manager.domain.errors import AlreadyOwned, InvalidInput, PlatformUnavailable
from nni_manager.domain.experiment import ExperimentWarning
from nni_manager.scheduler.daemon_warnings import DaemonWarnings
from nni_manager.scheduler.turns.runner_token import RunnerTokens
from trial_runner.wire import foreign_files


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPort:
    port: int
    #: Experiments whose jobs may have been told of it; None: an earlier version did not say.
    experiments: frozenset[str] | None
    #: Where it was to be; 0: anywhere, or an earlier version did not say.
    expected: int = 0


class TrialPortFile:
    """The file that tells the listener's port, while it is open and after a daemon that ended or was killed. Blocks."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> StoredPort | None:
        """The port in the file; None: there is no file, or nothing that means anything."""
        try:
            entry = json.loads(self._path.read_text(encoding="utf-8"))
            port, experiments, expected = entry["port"], entry.get("experiments"), entry.get("expected")
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not isinstance(port, int) or not 0 < port < 65536:
            return None
        return StoredPort(
            port=port,
            experiments=frozenset(map(str, experiments)) if isinstance(experiments, list) else None,
            expected=expected if isinstance(expected, int) else 0,
        )

    def write(self, port: int, experiments: Collection[str], expected: int) -> None:
        """Raises OSError."""
        entry = {"port": port, "experiments": sorted(experiments), "expected": expected}
        foreign_files.write_whole(str(self._path.parent), self._path.name, json.dumps(entry).encode())

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


log = logging.getLogger(__name__)

#: Codes of warnings.
_MOVED = "TRIAL_PORT_MOVED"
_CERTIFICATE = "TRIAL_CERTIFICATE"
#: Addresses that stand for all of this machine's → an address of the same family somewhere else.
_EVERYWHERE = {"0.0.0.0": "192.0.2.1", "::": "2001:db8::1"}  # noqa: S104 (named, not bound)


class TrialListenerSocket:
    """The `TrialListener` of the scheduler, as a socket. `allowed`: False with ``--no-listen``."""

    def __init__(
        self, settings: Settings, warnings: DaemonWarnings, *, allowed: bool, neighbour: Callable[[], int] | None = None
    ) -> None:
        """`warnings`: where it tells its users that it is not where it was expected. `neighbour`: the port beside which
        it opens unless told otherwise; 0: none; by default the service's.

        Raises OSError when the secret behind the tokens cannot be read or made, InvalidInput for a certificate that is
        none.
        """
        self.tokens = RunnerTokens.of(settings.data_dir)
        self._tls = trial_tls.of(settings)
        self.authority = trial_tls.authority_of(settings, self._tls)
        self._settings = settings
        self._warnings = warnings
        self._allowed = allowed
        self._neighbour = neighbour or (lambda: settings.port)
        self._file = TrialPortFile(settings.data_dir / "trial-listener.json")
        #: Experiments that want it open, whether it could be opened or not.
        self._users: set[str] = set()
        #: Those of them that the file names.
        self._recorded: frozenset[str] = frozenset()
        self._is_at_work: Callable[[str], bool] = lambda _: True
        self._listeners: asyncio.Future[tuple[Listeners, ASGIApp]] = asyncio.get_running_loop().create_future()
        self._opening = asyncio.Lock()
        self._reserved: Reserved | None = None
        #: Where it was to open; 0: anywhere.
        self._expected = 0

    def bind(self, listeners: Listeners, application: ASGIApp, is_at_work: Callable[[str], bool]) -> None:
        """Connects it to the daemon's listeners and to the application it serves; a caller of `open` waits for this.
        `is_at_work`: whether jobs of that experiment may run; all that an earlier daemon worked on are known by now."""
        self._is_at_work = is_at_work
        self._listeners.set_result((listeners, application))

    async def open(self, experiment_id: str) -> None:
        if not self._allowed:
            raise PlatformUnavailable(
                "trials of this platform report over TCP, and this daemon was started with --no-listen:"
                " start it without",
                refused=True,
            )
        listeners, application = await asyncio.shield(self._listeners)
        async with self._opening:
            self._users.add(experiment_id)
            await self._refresh_certificate()
            if self._reserved is None:
                reserved = await self._reserve()
                await listeners.open_trial_listener(reserved, application, self._tls.context if self._tls else None)
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
        """Uses a renewed certificate from now on; of one that cannot be used the warning tells, and the old one is
        kept."""
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
            return replace(found := await reserve_in_thread(self._choose), address=self._address_of(found))
        except (AlreadyOwned, InvalidInput, OSError) as error:
            raise PlatformUnavailable(f"the trial listener cannot be opened: {error}", refused=True) from None

    def _address_of(self, reserved: Reserved) -> str:
        return reserved.address if self._tls is None else f"https{reserved.address.removeprefix('http')}"

    async def _record_user(self, port: int) -> None:
        """Raises PlatformUnavailable."""
        try:
            await asyncio.to_thread(self._record, port)
        except OSError as error:
            raise PlatformUnavailable(f"the trial listener's port cannot be noted: {error}", refused=True) from None

    def _choose(self) -> Reserved:
        """The stored port while jobs of an earlier daemon may know it; else the configured one, else any free one."""
        stored = self._file.read()
        self._expected = self._expected_port()
        found = self._take_again(stored) if stored and self._is_known(stored) else self._take_new()
        try:
            self._record(found.port)
        except OSError:
            found.give_back()
            raise
        return found

    def _is_known(self, stored: StoredPort) -> bool:
        """Whether jobs may run that report there."""
        return stored.experiments is None or any(map(self._is_at_work, stored.experiments))

    def _record(self, port: int) -> None:
        """Raises OSError."""
        users = frozenset(self._users)
        self._file.write(port, users, self._expected)
        self._recorded = users

    def _take_again(self, stored: StoredPort) -> Reserved:
        """Takes the port of before. Where somebody else has it, only a person may give up what jobs report there."""
        try:
            found = self._take(stored.port)
        except AlreadyOwned as error:
            holder = str(error).partition("; ")[0]
            if self._settings.trial_port not in (0, stored.port):
                log.warning("%s; jobs that run cannot report any more", holder, extra={"action": "listener"})
                return self._take_new()
            raise AlreadyOwned(
                f"{holder}, and jobs that run report there; end that process, or start the daemon with another"
                " --trial-port, which those jobs will not find"
            ) from None
        self._expected = self._settings.trial_port or stored.expected
        return found

    def _take_new(self) -> Reserved:
        """Takes the expected port, or any where that is taken and was not chosen, as no job knows it yet."""
        try:
            return self._take(self._expected)
        except AlreadyOwned:
            if self._settings.trial_port:
                raise
            return self._take(0)

    def _expected_port(self) -> int:
        """The chosen one, else the one beside the service or the first endpoint; 0: any."""
        neighbour = self._neighbour()
        return self._settings.trial_port or (neighbour + 1 if 0 < neighbour < 65535 else 0)

    def _moved(self) -> ExperimentWarning | None:
        """A port that was published or opened in a firewall is known to nobody here: people must be told."""
        assert self._reserved is not None, "it is open"
        expected, port = self._expected, self._reserved.port
        if expected in (0, port):
            return None
        message = (
            f"the trial listener is on port {port} and not on {expected}, which was not free when it opened: trials"
            f" that must come through a published port or a firewall cannot report. Free port {expected} or choose one"
            " with --trial-port, and start the daemon again when no trial runs"
        )
        return ExperimentWarning(code=_MOVED, message=message)

    def _take(self, port: int) -> Reserved:
        return reserve(self._settings.trial_host, port, options="trial-")


def host_of(settings: Settings, manager_ip: str) -> str:
    """The name or address by which runners reach this machine."""
    host = manager_ip or settings.trial_host
    return _own_address(_EVERYWHERE[host]) if host in _EVERYWHERE else host


def check(settings: Settings) -> None:
    """Requires that service and trial listener may both be opened. Raises InvalidInput."""
    trial_tls.require_url(settings.trial_url)
    if settings.port and settings.port == settings.trial_port:
        raise InvalidInput(
            f"--port and --trial-port (port and trialPort) are both {settings.port}; choose another for one of them"
        )


def _own_address(elsewhere: str) -> str:
    """The address of the way out of this machine; nothing is sent."""
    family, nowhere = (socket.AF_INET6, "::1") if ":" in elsewhere else (socket.AF_INET, "127.0.0.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((elsewhere, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return nowhere
