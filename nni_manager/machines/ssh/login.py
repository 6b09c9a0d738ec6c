"""Logging in to a machine: its fields, `~/.ssh/config` and the agent, through jump hosts, to a trusted host key; and
keys that are not known yet, for a person to judge.

What is not in the config is looked up by asyncssh: identity files, the agent, `HostName` and `ProxyJump` of the user
of the manager. A password or a key file of the config is used alone.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncssh

from nni_manager.machines.ssh import known_hosts
from nni_manager.machines.ssh.address import ACCEPT_NEW, DEFAULT_PORT, Address, Credential, Entry
from nni_manager.machines.ssh.faults import Fault, MachineFault
from nni_manager.machines.ssh.known_hosts import HostKey, KnownHosts

log = logging.getLogger(__name__)

#: Seconds until one is logged in, from the first packet on.
CONNECT_S = 10.0
#: A machine that answers nothing for 20 seconds is not there any more.
_KEEPALIVE_S = 5.0
_KEEPALIVES = 3


async def log_in(address: Address, credential: Credential) -> asyncssh.SSHClientConnection:
    """A connection to a machine, logged in to; its jump hosts' connections end with it. Raises MachineFault."""
    tunnel: asyncssh.SSHClientConnection | None = None
    try:
        for hop in address.jumps:
            tunnel = await _jump(hop, tunnel, credential)
        connection = await _connect(address.host, address.port, address.user, tunnel, credential)
    except BaseException:
        if tunnel is not None:
            tunnel.abort()
        raise
    if "Windows" in str(connection.get_extra_info("server_version", "")):
        connection.abort()
        raise MachineFault(
            Fault(
                subject="system",
                sentence="it runs Windows, where trials cannot run in this version",
                is_wrong=True,
                fix="use a Linux machine, or WSL with an SSH server of its own",
            )
        )
    return connection


@asynccontextmanager
async def logged_in(entry: Entry) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """A context with a connection to a machine, which ends with it. Raises MachineFault."""
    connection = await log_in(entry.address, entry.credential)
    try:
        yield connection
    finally:
        connection.abort()


async def _jump(
    hop: str, tunnel: asyncssh.SSHClientConnection | None, credential: Credential
) -> asyncssh.SSHClientConnection:
    """A connection to a jump host, by the user's own keys and `known_hosts`, and the machine's key, never its
    password."""
    user, _, place = hop.rpartition("@")
    host, _, port = place.partition(":") if place.count(":") == 1 else (place, "", "")
    try:
        accepts_new = ACCEPT_NEW if credential.host_key == ACCEPT_NEW else None
        key = Credential(key_file=credential.key_file, passphrase=credential.passphrase, host_key=accepts_new)
        return await _connect(host, int(port or DEFAULT_PORT), user, tunnel, key)
    except MachineFault as error:
        fault = error.fault
        sentence = f"{fault.subject}: {fault.sentence}"
        raise MachineFault(replace(fault, subject=f"jump host {hop}", sentence=sentence)) from error


async def _connect(
    host: str, port: int, user: str, tunnel: asyncssh.SSHClientConnection | None, credential: Credential
) -> asyncssh.SSHClientConnection:
    """A connection to a host, logged in to. Raises MachineFault."""
    judge = _HostKeys(host, port, credential.host_key)
    try:
        # a limit of asyncssh's own would lose a cancellation that comes in the moment of the login
        async with asyncio.timeout(CONNECT_S):
            judge.known = await asyncio.to_thread(KnownHosts.of, host, user, port if port != DEFAULT_PORT else None)
            options = _options(port, user, credential, judge)
            connection = await asyncssh.connect(host, tunnel=tunnel or (), **options)
    except (asyncssh.Error, asyncssh.KeyImportError, asyncssh.KeyEncryptionError, OSError, ValueError) as error:
        raise MachineFault(_fault(error, host, port, user, credential, judge)) from error
    if tunnel is not None:
        connection.set_tunnel(tunnel)
    return connection


def _options(port: int, user: str, credential: Credential, judge: _HostKeys) -> dict[str, Any]:
    own: dict[str, Any] = {}
    if user:
        own["username"] = user
    if port != DEFAULT_PORT:  # `Port` of ~/.ssh/config wins over a default
        own["port"] = port
    if credential.password is not None:
        own.update(password=credential.password, client_keys=None, agent_path=None, public_key_auth=False)
    elif credential.key_file is not None:
        own.update(client_keys=[credential.key_file], passphrase=credential.passphrase)
    elif credential.passphrase is not None:
        own["passphrase"] = credential.passphrase
    if judge.wanted_algorithm:
        own["server_host_key_algs"] = judge.wanted_algorithm
    return {
        "client_factory": lambda: _Client(judge),
        "known_hosts": judge.known.match,
        "connect_timeout": None,
        "login_timeout": 0,
        "keepalive_interval": _KEEPALIVE_S,
        "keepalive_count_max": _KEEPALIVES,
        "x11_forwarding": False,
        "agent_forwarding": False,
        "request_pty": False,
        "send_env": None,
        "env": None,
        **own,
    }


class _HostKeys:
    """The judge of a key that `known_hosts` does not have. `wanted`: `hostKey` of the config."""

    def __init__(self, host: str, port: int, wanted: str | None) -> None:
        self._command = f"ssh {shlex.quote(host)}" if port == DEFAULT_PORT else f"ssh -p {port} {shlex.quote(host)}"
        self._host = host
        self._port = port
        self._wanted = wanted
        self.known = KnownHosts(of_user=(), of_machine=())
        self.offered: asyncssh.SSHKey | None = None
        self._unwritten = ""

    @property
    def wanted_algorithm(self) -> str:
        """The algorithm of a wanted public key, which a server with several keys is to show; empty: any."""
        word = (self._wanted or "").split(" ")[0]
        return "" if word.startswith(("SHA256:", "MD5:")) or word in ("ssh-rsa", ACCEPT_NEW) else word

    def accepts(self, key: asyncssh.SSHKey, host: str, port: int) -> bool:
        """Whether a host's key is accepted. `host`, `port`: those that ~/.ssh/config makes of ours."""
        self._host, self._port, self.offered = host, port, key
        if self.known.alias:  # without a port, as `ssh` has it
            self._host, self._port = self.known.alias, DEFAULT_PORT
        if self._wanted is None or self._is_revoked():
            return False
        if self._wanted == ACCEPT_NEW:
            return not self._is_known() and self._remember(key)
        if self._wanted.startswith("SHA256:"):
            return key.get_fingerprint() == self._wanted
        return key.export_public_key().decode().split()[:2] == self._wanted.split()[:2]

    def fault(self, reason: str) -> Fault:
        """`reason`: asyncssh's, which does not show keys that are revoked."""
        unknown = None
        shown = self.offered.get_fingerprint() if self.offered is not None else "of a kind that is not known here"
        if "revoked" in reason.lower() or self._is_revoked():
            sentence = "the key that it shows is revoked in known_hosts"
            fix = "give the machine another key: others have that one"
        elif self._unwritten:
            sentence = f"its key {shown} cannot be remembered in {self.known.written} ({self._unwritten})"
            fix = f"see to the rights of that file, or write `hostKey: {shown}` beside its `host`"
        elif self._wanted not in (None, ACCEPT_NEW):
            sentence = f"the machine's key is {shown}, not the `hostKey` of the config"
            fix = "if the machine was installed anew, correct `hostKey`; otherwise the connection is intercepted"
        elif self._is_known():
            sentence = f"its key has changed: {shown} is not the one in known_hosts"
            fix = (
                f"if the machine was installed anew, run `ssh-keygen -R {shlex.quote(self._place)}` and log in once"
                " with `ssh`; otherwise the connection is intercepted"
            )
        else:
            sentence = f"its key {shown} is not known"
            unknown = (
                HostKey.of(self.offered, self._host, self._port, self.known.written)
                if self.offered is not None
                else None
            )
            fix = (
                "if `ssh-keygen -lf` shows the same on the machine, run `nnictl platform trust --config FILE` with the"
                f" experiment file, log in once with `{self._command}`, or write `hostKey: {shown}` beside its `host`;"
                f" `hostKey: {ACCEPT_NEW}` takes the first key that is seen, as"
                " `ssh -o StrictHostKeyChecking=accept-new` does"
            )
        return Fault(
            subject="host key", sentence=sentence, fix=fix, is_wrong=True, is_refusal=True, unknown_key=unknown
        )

    def _remember(self, key: asyncssh.SSHKey) -> bool:
        """Writes a key into `known_hosts`, as `ssh` does, for the next login; answers whether that worked."""
        shown = HostKey.of(key, self._host, self._port, self.known.written)
        try:
            known_hosts.remember(shown)
        except OSError as error:
            self._unwritten = error.strerror or str(error)
            return False
        log.info("the key %s of %s is remembered in %s", shown.fingerprint, shown.place, shown.file)
        return True

    @property
    def _place(self) -> str:
        return known_hosts.place_of(self._host, self._port)

    def _is_known(self) -> bool:
        return self.known.knows(self._host, self._own_port)

    def _is_revoked(self) -> bool:
        return self.offered is not None and self.known.revokes(self.offered, self._host, self._own_port)

    @property
    def _own_port(self) -> int | None:
        return None if self._port == DEFAULT_PORT else self._port


class _Client(asyncssh.SSHClient):
    def __init__(self, judge: _HostKeys) -> None:
        self._judge = judge

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self._judge.accepts(key, host, port)


def _fault(error: Exception, host: str, port: int, user: str, credential: Credential, judge: _HostKeys) -> Fault:
    match error:
        case asyncssh.HostKeyNotVerifiable():
            return judge.fault(error.reason)
        case asyncssh.PermissionDenied():
            return _refused(user, credential)
        case asyncssh.KeyImportError() | asyncssh.KeyEncryptionError():
            return _bad_key(credential)
        case FileNotFoundError() | PermissionError() if credential.key_file is not None:
            sentence = f"the key file {credential.key_file} cannot be read ({error.strerror})"
            return Fault(subject="login", sentence=sentence, fix="correct `sshKeyFile`", is_wrong=True, is_refusal=True)
        case asyncssh.ConfigParseError():
            return Fault(
                subject="login", sentence=f"~/.ssh/config cannot be read: {error}", fix="correct it", is_wrong=True
            )
        case socket.gaierror():
            return Fault(
                subject="address",
                sentence=f"there is no address of the name {host} ({error.strerror})",
                fix="correct `host`, or see to the name service",
                is_wrong=True,
            )
        case ConnectionRefusedError():
            return Fault(
                subject="port",
                sentence=f"nothing listens at its port {port}",
                fix="start its SSH server, or correct `port`",
            )
        case TimeoutError() | asyncssh.TimeoutError():
            return Fault(
                subject="port",
                sentence=f"no answer from port {port} within {CONNECT_S:.0f} s (timeout)",
                fix="see whether the machine is on and no firewall drops what is sent there",
            )
        case asyncssh.ChannelOpenError():
            return Fault(subject="address", sentence=f"the jump host does not reach {host}:{port} ({error.reason})")
        case asyncssh.Error():
            return Fault(
                subject="port",
                sentence=f"its SSH server ended the conversation ({error.reason or 'without a word'})",
                fix=f"see whether an SSH server answers at port {port}, and its log",
            )
        case OSError():
            return Fault(subject="address", sentence=f"it cannot be reached ({error.strerror or error})")
        case _:
            return Fault(subject="login", sentence=f"it cannot be logged in to ({error})", is_wrong=True)


def _refused(user: str, credential: Credential) -> Fault:
    if credential.password is not None:
        sentence, fix = f"the password of {user} is refused", "correct `password`"
    elif credential.key_file is not None:
        sentence = f"the key {credential.key_file} is refused for {user}"
        fix = f"add its public key to ~{user}/.ssh/authorized_keys there, or correct `sshKeyFile` or `user`"
    else:
        sentence = f"neither a key in ~/.ssh nor one of the agent is accepted for {user}"
        fix = "set `sshKeyFile` or `password`, or start the manager where the agent's SSH_AUTH_SOCK is set"
    return Fault(subject="login", sentence=sentence, fix=fix, is_wrong=True, is_refusal=True)


def _bad_key(credential: Credential) -> Fault:
    if credential.passphrase is None:
        sentence = f"the key {credential.key_file or 'in ~/.ssh'} is locked, or no private key"
        fix = "set `sshPassphrase`, or have the agent unlock it and leave `sshKeyFile` out"
    else:
        sentence, fix = f"`sshPassphrase` does not open the key {credential.key_file}", "correct it"
    return Fault(subject="login", sentence=sentence, fix=fix, is_wrong=True, is_refusal=True)


async def unknown_key(machine: Mapping[str, Any]) -> HostKey | None:
    """The first key on the way to a machine of `machineList` that is not known: of a jump host, or its own.

    None: all are. Raises MachineFault where none is shown, and for one that has changed.
    """
    entry = Entry.of(machine)
    given = entry.credential
    credential = replace(given, host_key=None) if given.host_key == ACCEPT_NEW else given
    try:
        (await log_in(entry.address, credential)).abort()
    except MachineFault as error:
        if error.fault.unknown_key is not None:
            return error.fault.unknown_key
        if error.fault.subject != "login":
            raise
    return None
