"""The files of known and revoked host keys that `ssh` would read for a host.

asyncssh reads only the user's own files, interprets ``UserKnownHostsFile none`` as "accept any key", and checks for
revoked keys only if it finds known ones. So this module reads the files, and passes their entries to asyncssh.
"""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import asyncssh
from asyncssh.config import SSHClientConfig, SSHConfig

from nni_manager.machines.ssh.address import DEFAULT_PORT
from nni_manager.machines.ssh.revoked_keys import RevokedKeys, files_of_machine

log = logging.getLogger(__name__)

_OF_USER = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_OF_MACHINE = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_NO_FILES = ("none", "/dev/null")
#: The machine's own configuration of `ssh`, which asyncssh does not read.
_CONFIG_OF_MACHINE = "/etc/ssh/ssh_config"
_REVOKED = "RevokedHostKeys"
# asyncssh skips this option; like that of known hosts, it is a list of files
SSHClientConfig._handlers.setdefault(_REVOKED.lower(), (_REVOKED, SSHConfig._set_string_list))
#: Lines that were already logged.
_MOST_LOGGED = 1000

#: Keys, authorities and revoked keys of a host, and the same of X.509: the form that asyncssh expects.
Matched = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """The key that a machine has shown."""

    #: Host and port as in `known_hosts`.
    place: str
    fingerprint: str
    #: Algorithm and key as in `known_hosts`.
    text: str
    #: The file to which `ssh` would add it.
    file: str

    @classmethod
    def of(cls, key: asyncssh.SSHKey, host: str, port: int, file: str) -> Self:
        text = " ".join(key.export_public_key().decode().split()[:2])
        return cls(place=place_of(host, port), fingerprint=key.get_fingerprint(), text=text, file=file)


def place_of(host: str, port: int) -> str:
    """Host and port as in `known_hosts`."""
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"


def remember(key: HostKey) -> None:
    """Adds a key to its file, as `ssh` does. Raises OSError."""
    os.makedirs(os.path.dirname(key.file), mode=0o700, exist_ok=True)
    file = os.open(key.file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(file, "r+b") as known:
        size = os.fstat(file).st_size
        begin = b"" if size == 0 or os.pread(file, 1, size - 1) == b"\n" else b"\n"
        known.write(begin + f"{key.place} {key.text}\n".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHosts:
    """The files for a host: from `~/.ssh/config`, or the defaults."""

    of_user: tuple[str, ...]
    of_machine: tuple[str, ...]
    #: The name of the host in the files (`HostKeyAlias`); empty: its own.
    alias: str = ""
    revoked: RevokedKeys = field(default_factory=RevokedKeys)

    @classmethod
    def of(cls, host: str, options: asyncssh.SSHClientConnectionOptions) -> KnownHosts:
        """The files of a host. `options`: its options in `~/.ssh/config`. Raises asyncssh.ConfigParseError."""
        values = {
            "d": os.path.expanduser("~"),
            "h": options.host,
            "n": host,
            "p": str(options.port),
            "r": options.username,
            "u": getpass.getuser(),
            "%": "%",
        }
        return cls(
            of_user=_files(options.config.get("UserKnownHostsFile"), _OF_USER, values),
            of_machine=_files(options.config.get("GlobalKnownHostsFile"), _OF_MACHINE, values),
            alias=options.host_key_alias or "",
            revoked=RevokedKeys.read(_files(_revoked(host, options), (), values)),
        )

    @property
    def written(self) -> str:
        """The file to which `ssh` adds a key."""
        return self.of_user[0] if self.of_user else os.path.expanduser(_OF_USER[0])

    def match(self, host: str, address: str, port: int | None) -> Matched:
        """The keys of a host in the files.

        A key that is revoked for the host is revoked at each of its ports.
        """
        known = _read((*self.of_user, *self.of_machine))
        keys, authorities, revoked, *x509 = known.match(host, address, port)
        if port is not None:
            others = (known.match(host, address, None), known.match(f"[{host}]:{port}", "", None))
            revoked = [*revoked, *(key for one in others for key in one[2])]
        revoked = [*revoked, *self.revoked.listed]
        revoked += [key for key in (*keys, *authorities) if self.revoked.has(key)]
        trusted = [key for key in authorities if not self.revoked.distrusts(key)]
        return (keys, trusted, list(dict.fromkeys(revoked)), *x509)

    def knows(self, host: str, port: int | None) -> bool:
        """Whether any file has a key or an authority of the host; if so, another key means a changed one."""
        return any(self.match(host, "", port)[:2])

    def revokes(self, key: asyncssh.SSHKey, host: str, port: int | None) -> bool:
        """Whether the key is revoked for the host, at any port."""
        return self.revoked.has(key) or key in self.match(host, "", port)[2]


def _revoked(host: str, options: asyncssh.SSHClientConnectionOptions) -> object:
    """The option `RevokedHostKeys` of the user, or else of the machine; None: not set."""
    found = options.config.get(_REVOKED)
    return files_of_machine(Path(_CONFIG_OF_MACHINE), host) if found is None else found


def _files(given: object, default: Sequence[str], values: dict[str, str]) -> tuple[str, ...]:
    """The files of an option of `~/.ssh/config`; None: not set."""
    names = default if given is None else [str(name) for name in given]  # type: ignore[attr-defined]  # a list of words
    return tuple(_expanded(name, values) for name in names if name not in _NO_FILES)


def _expanded(name: str, values: dict[str, str]) -> str:
    """A file name with the home folder and the tokens of `ssh_config` expanded."""
    parts = name.split("%")
    expanded, rest = parts[0], iter(parts[1:])
    for part in rest:
        expanded += values.get(part[:1], f"%{part[:1]}") + part[1:] if part else "%" + next(rest, "")
    return os.path.expanduser(expanded)


def _read(paths: Sequence[str]) -> asyncssh.SSHKnownHosts:
    """The entries of files. Unreadable lines are skipped, as in `ssh`; a missing file has none."""
    known = asyncssh.import_known_hosts("")
    for path in paths:
        for number, line in enumerate(_text(path).split("\n"), 1):
            try:
                known.load(line)
            except ValueError as error:
                _warn(path, number, str(error))
    return known


@lru_cache(maxsize=_MOST_LOGGED)
def _warn(path: str, number: int, reason: str) -> None:
    """Logs each line once, not at each login."""
    log.warning("%s:%d is skipped: %s", path, number, reason)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
