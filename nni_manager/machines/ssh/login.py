"""Logging in to a machine: its fields, `~/.ssh/config` and the agent, through jump hosts, to a trusted host key.

Also collects unknown host keys for the user to check. asyncssh looks up what the config lacks: identity files, the
agent, `HostName` and `ProxyJump` of the manager's user. A password or key file in the config excludes other methods.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncssh

from nni_manager.machines.ssh.address import ACCEPT_NEW, DEFAULT_PORT, Address, Credential, Entry, JumpHost
from nni_manager.machines.ssh.answering_host import answering_host
from nni_manager.machines.ssh.faults import Fault, MachineFault
from nni_manager.machines.ssh.host_keys import HostKeyJudge
from nni_manager.machines.ssh.known_hosts import HostKey
from nni_manager.machines.ssh.login_faults import CONNECT_S, HostLogin, login_fault
from nni_manager.machines.ssh.user_config import UserConfig

#: A machine without an answer for 20 seconds counts as gone.
_KEEPALIVE_S = 5.0
_KEEPALIVES = 3


async def log_in(address: Address, credential: Credential) -> asyncssh.SSHClientConnection:
    """A connection to a machine, logged in; its jump hosts' connections end with it. Raises MachineFault."""
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
                sentence="it runs Windows, which this version does not support for trials",
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
    """A connection to a jump host, with the user's own keys and `known_hosts`, and the machine's key, but never its
    password."""
    try:
        jump = JumpHost.parse(hop)
        accepts_new = ACCEPT_NEW if credential.host_key == ACCEPT_NEW else None
        key = Credential(key_file=credential.key_file, passphrase=credential.passphrase, host_key=accepts_new)
        return await _connect(jump.host, jump.port, jump.user, tunnel, key)
    except ValueError as error:
        fault = Fault(subject=f"jump host {hop}", sentence=str(error), fix="correct `proxyJump`", is_wrong=True)
        raise MachineFault(fault) from error
    except MachineFault as error:
        fault = error.fault
        sentence = f"{fault.subject}: {fault.sentence}"
        raise MachineFault(replace(fault, subject=f"jump host {hop}", sentence=sentence)) from error


async def _connect(
    host: str, port: int, user: str, tunnel: asyncssh.SSHClientConnection | None, credential: Credential
) -> asyncssh.SSHClientConnection:
    """A connection to a host, logged in. Raises MachineFault."""
    judge = HostKeyJudge(host, port, credential.host_key)
    login = HostLogin(host=host, port=port, user=user, credential=credential, judge=judge)
    try:
        async with asyncio.timeout(CONNECT_S):
            own_port = port if port != DEFAULT_PORT else None
            login.config = await asyncio.to_thread(UserConfig.read, host, user, own_port)
            judge.known = login.config.known_hosts
        login.keys = await asyncio.to_thread(_unlocked, credential)
        async with _in_time(login):
            connection = await _verified(login, tunnel)
    except (asyncssh.Error, asyncssh.KeyImportError, asyncssh.KeyEncryptionError, OSError, ValueError) as error:
        raise MachineFault(login_fault(error, login)) from error
    if tunnel is not None:
        connection.set_tunnel(tunnel)
    return connection


def _unlocked(credential: Credential) -> Sequence[asyncssh.SSHKeyPair]:
    """The credential's private key; None: it has another method. Raises like `asyncssh.connect`.

    Unlocking takes a second or more, which must not count as the server's silence.
    """
    if credential.key_file is None or credential.password is not None:
        return ()
    return asyncssh.load_keypairs([credential.key_file], credential.passphrase)


@asynccontextmanager
async def _in_time(login: HostLogin) -> AsyncIterator[None]:
    """A context for a login. Raises TimeoutError if a server is silent, or slow to log in.

    asyncssh's own time limit would lose a cancellation in the moment of the login.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(login.login_s) as limit:
        ends_silence = loop.call_later(
            login.connect_s, lambda: None if login.has_answered else limit.reschedule(loop.time())
        )
        try:
            yield
        finally:
            ends_silence.cancel()


async def _verified(login: HostLogin, tunnel: asyncssh.SSHClientConnection | None) -> asyncssh.SSHClientConnection:
    """A connection to a host, any of whose keys may be the right one. Raises like `asyncssh.connect`."""
    refusal: asyncssh.HostKeyNotVerifiable | None = None
    while True:
        try:
            reached = {} if tunnel is not None else await _reached(login)
            return await asyncssh.connect(login.host, tunnel=tunnel or (), **_options(login), **reached)
        except asyncssh.HostKeyNotVerifiable as error:
            refusal = error
            if not login.judge.asks_for_another(error.reason):
                raise
        except asyncssh.KeyExchangeFailed:
            if refusal is None:
                raise
            raise refusal from None  # it has no other key
        except (asyncssh.ConnectionLost, ConnectionError):
            if refusal is None or login.judge.is_content:
                raise
            raise refusal from None  # some servers report this way that they have no other key


async def _reached(login: HostLogin) -> dict[str, socket.socket]:
    """The option with a connection to the first of a host's addresses that answers; empty: asyncssh connects.

    A name may lead to several hosts. asyncssh would wait for a silent one until the login fails.
    """
    assert login.config is not None, "it is read first"
    if login.config.target is None:
        return {}
    host, port, family = login.config.target
    found = await asyncio.get_running_loop().getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    if len(found) < 2:
        return {}
    sock = await answering_host(found, login.silent)
    login.silent.clear()
    return {"sock": sock}


def _options(login: HostLogin) -> dict[str, Any]:
    own, judge = _own_options(login), login.judge
    if judge.algorithms:
        own["server_host_key_algs"] = judge.algorithms
    return {
        "client_factory": lambda: _Client(login),
        "known_hosts": judge.match,
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


def _own_options(login: HostLogin) -> dict[str, Any]:
    """User, port and credential, if the machine's entry has them."""
    own: dict[str, Any] = {}
    credential = login.credential
    if login.user:
        own["username"] = login.user
    if login.port != DEFAULT_PORT:  # `Port` of ~/.ssh/config overrides a default
        own["port"] = login.port
    if credential.password is not None:
        own.update(password=credential.password, client_keys=None, agent_path=None, public_key_auth=False)
        return own
    if credential.passphrase is not None:
        own["passphrase"] = credential.passphrase
    if login.keys:
        own["client_keys"] = login.keys
    elif login.config is not None and login.config.key_files is not None:
        own.update(login.config.key_files.options())
    return own


class _Client(asyncssh.SSHClient):
    def __init__(self, login: HostLogin) -> None:
        self._login = login

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._login.connection = conn

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self._login.judge.accepts(key, host, port)


async def unknown_key(machine: Mapping[str, Any]) -> HostKey | None:
    """The first unknown key on the way to a machine of `machineList`: of a jump host, or its own.

    None: all are known. Raises MachineFault if no key is shown, or if one has changed.
    """
    entry = Entry.of(machine)
    given = entry.credential
    credential = replace(given, host_key=None) if given.host_key == ACCEPT_NEW else given
    try:
        (await log_in(entry.address, credential)).abort()
    except MachineFault as error:
        if error.fault.unknown_key is not None:
            return error.fault.unknown_key
        if not isinstance(error.__cause__, asyncssh.PermissionDenied):  # raised after its key was accepted
            raise
    return None
