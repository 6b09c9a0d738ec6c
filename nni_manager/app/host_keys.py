"""Shows unknown host keys of an experiment file's machines, and stores confirmed ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nni_manager.config import admission, credentials, experiment_file
from nni_manager.domain.errors import InvalidInput, PlatformUnavailable

if TYPE_CHECKING:
    from nni_manager.machines.ssh.known_hosts import HostKey as HostKey

_REMOTE = "remote"


def trust(
    path: Path, data_directory: Path, environment: Mapping[str, str], agrees: Callable[[str, HostKey], bool]
) -> Iterator[str]:
    """Ask `agrees` about each unknown key on the way to a file's machines; write confirmed ones to `known_hosts`.

    Yields a message per machine. Raises ConfigInvalid, InvalidInput for a file without machines, OSError if the key
    cannot be written.
    """
    reading = experiment_file.read_file(path, data_directory, environment)
    admission.check(reading.spec)
    settings = [credentials.filled(one, reading.secrets) for one in reading.spec.platforms if one.name == _REMOTE]
    if not settings:
        raise InvalidInput(f"{path} does not list machines: add a training service {_REMOTE}")
    for machine in (machine for section in settings for machine in section["machineList"]):
        yield f"{machine['host']}: {_judged(machine, agrees)}"


def _judged(machine: Mapping[str, Any], agrees: Callable[[str, HostKey], bool]) -> str:
    from nni_manager.machines.ssh.faults import MachineFault
    from nni_manager.machines.ssh.known_hosts import remember
    from nni_manager.machines.ssh.login import unknown_key

    written: list[str] = []
    while True:
        try:
            key = asyncio.run(unknown_key(machine))
        except MachineFault as error:
            raise PlatformUnavailable(f"{machine['host']}: {error.fault.subject}: {error.fault}") from error
        if key is None:
            return f"trusted now: {', '.join(written)}" if written else "its host key is known"
        if key.place in written or not agrees(str(machine["host"]), key):
            return f"not trusted: {key.place} {key.fingerprint}"
        remember(key)
        written.append(f"{key.place} {key.fingerprint}")
