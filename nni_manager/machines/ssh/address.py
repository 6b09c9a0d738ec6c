"""The address of a machine, which is no secret, and the login to it, which is, from its entry in `machineList`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

DEFAULT_PORT = 22
#: In place of a host key: the first one that is seen is taken, and remembered.
ACCEPT_NEW = "accept-new"


_PORTS = range(1, 65536)
#: A host, or an IPv6 address in brackets, with a port or without; or an IPv6 address alone.
_PLACE = re.compile(
    r"(?:\[(?P<inner>[^]]+)\]|(?P<host>[^][:]+))(?::(?P<port>[^:]*))?|(?P<bare>(?=.*:.*:)[0-9A-Fa-f:.]+(?:%\w+)?)"
)


#: Characters that OpenSSH refuses in names, as commands of ~/.ssh/config repeat them to a shell.
_NO_HOST, _NO_USER = frozenset("'`\"$\\;&<>|(){}, "), frozenset("'`\";&<>|(){}")


def require_host(host: str) -> None:
    """Refuses what `ssh` does not take as a host. IPv6 addresses, zones and underscores are taken. Raises
    ValueError."""
    _require_name("host", host, _NO_HOST)


def require_user(user: str) -> None:
    """Refuses what `ssh` does not take as a user. Names of a directory service are taken: with a domain and a
    backslash, ``@``, dots, spaces or a final ``$``. Raises ValueError."""
    _require_name("user", user, _NO_USER)
    if " -" in user or user.endswith("\\"):
        raise ValueError(
            f"{user!r} is no name of a user: no word in it begins with a dash, and it ends with no backslash"
        )


def _require_name(what: str, name: str, refused: frozenset[str]) -> None:
    if name.startswith("-"):
        raise ValueError(f"{name!r} is no name of a {what}: it begins with a dash, as options do")
    if wrong := next((one for one in name if one in refused or not one.isprintable()), ""):
        raise ValueError(f"{name!r} is no name of a {what}: no name has {wrong!r} in it")


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpHost:
    """A host on the way. `user`: empty: that of `~/.ssh/config`, or the manager's."""

    host: str
    port: int
    user: str

    @classmethod
    def parse(cls, hop: str) -> Self:
        """A host from ``user@host:port`` or ``ssh://user@host:port``, as `ssh -J` takes them. Raises ValueError."""
        text = hop.removeprefix("ssh://").removesuffix("/")
        user, _, place = text.rpartition("@")
        found = _PLACE.fullmatch(place)
        if found is None:
            raise ValueError(f"{hop} is no `user@host:port`; an IPv6 address with a port is in brackets")
        port = DEFAULT_PORT if found["port"] is None else int(found["port"]) if found["port"].isdecimal() else 0
        if port not in _PORTS:
            raise ValueError(f"the port of {hop} is no number from 1 to {_PORTS[-1]}")
        host = found["inner"] or found["host"] or found["bare"]
        require_host(host)
        require_user(user)
        return cls(host=host, port=port, user=user)


def hops(proxy_jump: str) -> tuple[str, ...]:
    """The jump hosts of a `proxyJump`, as they are written; `none` is none."""
    found = tuple(hop.strip() for hop in proxy_jump.split(",") if hop.strip())
    return () if found == ("none",) else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a machine. `jumps`: as the config has them, ``user@host:port``, the first one first."""

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
        """The name of the machine's folder, legal and unique."""
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
        """The credential as text, as a lease carries it."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of `machineList`, with its address and credential as `Address` and `Credential` read them."""

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
