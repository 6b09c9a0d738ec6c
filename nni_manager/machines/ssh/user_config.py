"""Options of `~/.ssh/config` for a host that are read before a login: known hosts, keys, `ConnectTimeout`.

asyncssh aborts a login if a key file is missing; `ssh` continues without it. So these files are checked here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import asyncssh

from nni_manager.machines.ssh.known_hosts import KnownHosts

#: Words in every file with a private key.
_PRIVATE = b"PRIVATE KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """The files of `IdentityFile` and `CertificateFile`. `public`: of keys that the agent may have."""

    private: tuple[str, ...]
    public: tuple[str, ...]
    missing: tuple[str, ...]
    certificates: tuple[str, ...]
    #: The agent's other keys are ignored (`IdentitiesOnly`).
    is_only: bool

    @classmethod
    def of(cls, names: Sequence[str], certificates: Sequence[str], *, is_only: bool) -> Self:
        private: list[str] = []
        public: list[str] = []
        missing: list[str] = []
        for name in map(os.path.expanduser, names):
            content = _content(name)
            if content is not None:
                (private if _PRIVATE in content else public).append(name)
            if _content(f"{name}.pub") is not None:
                public.append(f"{name}.pub")
            elif content is None:
                missing.append(name)
        there = [name for name in map(os.path.expanduser, certificates) if _content(name) is not None]
        return cls(
            private=tuple(private),
            public=tuple(public),
            missing=tuple(missing),
            certificates=tuple(there),
            is_only=is_only,
        )

    def options(self) -> dict[str, Any]:
        """Options for asyncssh, which uses the default keys if it is given none."""
        options = {"client_certs": [*self.certificates], "ignore_encrypted": True}
        if not self.is_only:
            return {**options, "client_keys": [*self.private]}
        # asyncssh skips public keys and falls back to the default keys, which are not wanted here
        keys = [*self.private, *self.public]
        return {**options, "client_keys": keys, "agent_identities": [*self.public] or None}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserConfig:
    """The options for a host. `key_files`: None: not set."""

    known_hosts: KnownHosts
    key_files: KeyFiles | None = None
    #: `ConnectTimeout`; 0: not set.
    connect_s: float = 0.0
    #: Jump hosts, or a proxy command, are on the way.
    is_indirect: bool = False
    #: Host, port and address family to connect to; None: only asyncssh can resolve it.
    target: tuple[str, int, int] | None = None

    @classmethod
    def read(cls, host: str, user: str, port: int | None) -> Self:
        """Raises asyncssh.ConfigParseError."""
        given = {"username": user} if user else {}
        options = asyncssh.SSHClientConnectionOptions(
            config=(), host=host, client_keys=None, agent_path=None, **given, **({"port": port} if port else {})
        )
        is_indirect = bool(options.tunnel or options.proxy_command)
        is_changed_later = bool(options.canonicalize_hostname) or options.config.has_match_final()
        is_plain = not (is_indirect or is_changed_later or options.local_addr)
        return cls(
            known_hosts=KnownHosts.of(host, options),
            key_files=_key_files(options),
            connect_s=options.connect_timeout or 0.0,
            is_indirect=is_indirect,
            target=(options.host, options.port, int(options.family)) if is_plain else None,
        )


def _key_files(options: asyncssh.SSHClientConnectionOptions) -> KeyFiles | None:
    names = cast("list[str]", options.config.get("IdentityFile", []))
    certificates = cast("list[str]", options.config.get("CertificateFile", []))
    is_only = bool(options.config.get("IdentitiesOnly"))
    return KeyFiles.of(names, certificates, is_only=is_only) if names or certificates else None


def _content(name: str) -> bytes | None:
    """None: the file does not exist or is not readable."""
    try:
        return Path(name).read_bytes()
    except OSError:
        return None
