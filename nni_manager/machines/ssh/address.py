"""The address of a machine (not secret) and the login to it (secret), from its entry in `machineList`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

DEFAULT_PORT = 22
#: Instead of a host key: the first key is accepted and stored.
ACCEPT_NEW = "accept-new"


_PORTS = range(1, 65536)
#: A host, or an IPv6 address in brackets, with or without a port; or an IPv6 address alone.
_PLACE = re.compile(
    r"(?:\[(?P<inner>[^]]+)\]|(?P<host>[^][:]+))(?::(?P<port>[^:]*))?|(?P<bare>(?=.*:.*:)[0-9A-Fa-f:.]+(?:%\w+)?)"
)


#: Characters that OpenSSH refuses in names, as commands of ~/.ssh/config pass them to a shell.
_NO_HOST, _NO_USER = frozenset("'`\"$\\;&<>|(){}, "), frozenset("'`\";&<>|(){}")


def require_host(host: str) -> None:
    """Refuses hosts that `ssh` does not accept. IPv6 addresses, zones and underscores are accepted. Raises
    ValueError."""
    _require_name("host", host, _NO_HOST)


def require_user(user: str) -> None:
    """Refuses users that `ssh` does not accept. Names of directory services are accepted: with a domain and a
    backslash, ``@``, dots, spaces or a final ``$``. Raises ValueError."""
    _require_name("user", user, _NO_USER)
    if " -" in user or user.endswith("\\"):
        raise ValueError(
            f"{user!r} is not a valid user name: no word may begin with a dash, and it must not end with a backslash"
        )


def _require_name(what: str, name: str, refused: frozenset[str]) -> None:
    if name.startswith("-"):
        raise ValueError(f"{name!r} is not a valid {what} name: it must not begin with a dash, like an option")
    if wrong := next((one for one in name if one in refused or not one.isprintable()), ""):
        raise ValueError(f"{name!r} is not a valid {what} name: it must not contain {wrong!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpHost:
    """A host on the way. `user`: empty: from `~/.ssh/config`, or the manager's."""

    host: str
    port: int
    user: str

    @classmethod
    def parse(cls, hop: str) -> Self:
        """A host from ``user@host:port`` or ``ssh://user@host:port``, in the syntax of `ssh -J`. Raises ValueError."""
        text = hop.removeprefix("ssh://").removesuffix("/")
        user, _, place = text.rpartition("@")
        found = _PLACE.fullmatch(place)
        if found is None:
            raise ValueError(f"{hop} is not `user@host:port`; put an IPv6 address with a port in brackets")
        port = DEFAULT_PORT if found["port"] is None else int(found["port"]) if found["port"].isdecimal() else 0
        if port not in _PORTS:
            raise ValueError(f"the port of {hop} is not a number from 1 to {_PORTS[-1]}")
        host = found["inner"] or found["host"] or found["bare"]
        require_host(host)
        require_user(user)
        return cls(host=host, port=port, user=user)


def hops(proxy_jump: str) -> tuple[str, ...]:
    """The jump hosts of a `proxyJump`, as written; `none` means none."""
    found = tuple(hop.strip() for hop in proxy_jump.split(",") if hop.strip())
    return () if found == ("none",) else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a machine. `jumps`: as in the config, ``user@host:port``, in order."""

    host: str
    port: int
    user: str
    jumps: tuple[str, ...] = ()

    @classmethod
    def of(cls, machine: Mapping[str, Any]) -> Self:
        return cls(
            host=machine["host"],
            port=machine.get("port", DEFAULT_PORT),
            user=machine["user"],
            jumps=hops(machine.get("proxyJump", "")),
        )

    @property
    def key(self) -> str:
        """The key of the machine's connection."""
        via = "".join(f"/{hop}" for hop in self.jumps)
        return f"ssh:{self.user}@{self.host}:{self.port}{via}"

    @property
    def folder(self) -> str:
        """The name of the machine's folder, valid and unique."""
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:8]
        return f"{re.sub('[^A-Za-z0-9.-]', '_', self.host)[:40]}-{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """The login of one experiment, and the machine's key that it trusts."""

    password: str | None = field(default=None, repr=False)
    key_file: str | None = None
    passphrase: str | None = field(default=None, repr=False)
    host_key: str | None = None

    @classmethod
    def of(cls, machine: Mapping[str, Any]) -> Self:
        password = machine.get("password")
        return cls(
            password=password,
            key_file=None if password else machine.get("sshKeyFile"),
            passphrase=machine.get("sshPassphrase"),
            host_key=machine.get("hostKey"),
        )

    def as_text(self) -> str:
        """The credential as text, as stored in a lease."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of `machineList`, with its address and credential."""

    address: Address
    credential: Credential = field(repr=False)
    python_path: str
    pre_command: str
    #: The machine takes no new jobs.
    is_drained: bool
    use_active_gpu: bool = False
    max_trial_number_per_gpu: int | None = None
    gpu_indices: tuple[int, ...] | None = None

    @classmethod
    def of(cls, machine: Mapping[str, Any]) -> Entry:
        return cls(
            address=Address.of(machine),
            credential=Credential.of(machine),
            python_path=machine.get("pythonPath", ""),
            pre_command=machine.get("preCommand", ""),
            is_drained=machine.get("drain", False),
            use_active_gpu=machine.get("useActiveGpu", False),
            max_trial_number_per_gpu=machine.get("maxTrialNumberPerGpu"),
            gpu_indices=tuple(machine["gpuIndices"]) if machine.get("gpuIndices") else None,
        )
