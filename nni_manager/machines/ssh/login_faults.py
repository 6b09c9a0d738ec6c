"""What went wrong with a login: errors of asyncssh and of the network in words, with what to do."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import asyncssh

from nni_manager.machines.ssh.address import Credential
from nni_manager.machines.ssh.faults import Fault
from nni_manager.machines.ssh.host_keys import HostKeyJudge
from nni_manager.machines.ssh.user_config import UserConfig

#: Seconds until an SSH server has answered, and until it has let us in: a directory of users may take long for that.
CONNECT_S, LOGIN_S = 10.0, 30.0


@dataclass(slots=True, kw_only=True)
class HostLogin:
    """A login to a host, and how far it is. `judge`: of its key; `config`: None: not read yet."""

    host: str
    port: int
    user: str
    credential: Credential = field(repr=False)
    judge: HostKeyJudge
    config: UserConfig | None = None
    #: The credential's private key, unlocked.
    keys: Sequence[asyncssh.SSHKeyPair] = field(default=(), repr=False)
    connection: asyncssh.SSHClientConnection | None = None

    @property
    def connect_s(self) -> float:
        """Seconds until a server has answered: by way of another host, as many as for a login."""
        assert self.config is not None, "it is read first"
        return self.login_s if self.config.is_indirect else max(CONNECT_S, self.config.connect_s)

    @property
    def login_s(self) -> float:
        """Seconds until it has let us in."""
        assert self.config is not None, "it is read first"
        return max(LOGIN_S, self.config.connect_s)

    @property
    def has_answered(self) -> bool:
        """Whether a server has named itself, also where it is asked for another key since."""
        answer = self.connection and self.connection.get_extra_info("server_version")
        return self.judge.offered is not None or answer is not None


def login_fault(error: Exception, login: HostLogin) -> Fault:
    """The fault that an error of a login stands for."""
    host, port, credential = login.host, login.port, login.credential
    match error:
        case asyncssh.HostKeyNotVerifiable():
            return login.judge.fault(error.reason)
        case asyncssh.PermissionDenied():
            return _refused(login)
        case asyncssh.KeyImportError() | asyncssh.KeyEncryptionError():
            return _bad_key(credential)
        case FileNotFoundError() | PermissionError() if credential.key_file is not None:
            sentence = f"the key file {credential.key_file} cannot be read ({error.strerror})"
            return Fault(subject="login", sentence=sentence, fix="correct `sshKeyFile`", is_wrong=True, is_refusal=True)
        case FileNotFoundError() | PermissionError() if error.filename:
            sentence = f"{error.filename}, which ~/.ssh/config names, cannot be used ({error.strerror})"
            return Fault(subject="login", sentence=sentence, fix="correct it there", is_wrong=True)
        case asyncssh.ConfigParseError():
            return _unread_config(error)
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
            return _late(login)
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


def _unread_config(error: asyncssh.ConfigParseError) -> Fault:
    return Fault(
        subject="login",
        sentence=f"the manager's SSH library (asyncssh) cannot read a line of your SSH configuration: {error}",
        fix="`ssh` may take it; write it as both read it (a time as a number of seconds, the command of `Match exec`"
        " as a script without `=`), or move it to a `Host` block of other machines",
        is_wrong=True,
    )


def _late(login: HostLogin) -> Fault:
    """The fault of a login that took too long, by how far it came."""
    if login.config is None:
        sentence = f"~/.ssh/config is not read within {CONNECT_S:.0f} s (timeout)"
        return Fault(subject="login", sentence=sentence, fix="see to the commands of its lines `Match exec`")
    if login.has_answered:
        sentence = f"its SSH server answers, and has not let {login.user} in within {login.login_s:.0f} s (timeout)"
        fix = (
            "see its log: the directory of its users, or its name service (`UseDNS`), is slow; a longer"
            " `ConnectTimeout` in ~/.ssh/config is waited for"
        )
        return Fault(subject="login", sentence=sentence, fix=fix)
    if login.connection is not None:
        sentence = (
            f"port {login.port} takes connections, but no SSH server answers in {login.connect_s:.0f} s (timeout)"
        )
        return Fault(subject="port", sentence=sentence, fix="see whether an SSH server has that port, and its log")
    return Fault(
        subject="port",
        sentence=f"no answer from port {login.port} within {login.connect_s:.0f} s (timeout)",
        fix="see whether the machine is on and no firewall drops what is sent there",
    )


def _refused(login: HostLogin) -> Fault:
    user, credential = login.user, login.credential
    if credential.password is not None:
        sentence, fix = f"the password of {user} is refused", "correct `password`"
    elif credential.key_file is not None:
        sentence = f"the key {credential.key_file} is refused for {user}"
        fix = f"add its public key to ~{user}/.ssh/authorized_keys there, or correct `sshKeyFile` or `user`"
    else:
        sentence = f"neither a key in ~/.ssh nor one of the agent is accepted for {user}"
        if login.config is not None and login.config.key_files is not None and login.config.key_files.missing:
            sentence += f"; ~/.ssh/config names {' and '.join(login.config.key_files.missing)}, which cannot be read"
        fix = "set `sshKeyFile` or `password`, or start the manager where the agent's SSH_AUTH_SOCK is set"
    return Fault(subject="login", sentence=sentence, fix=fix, is_wrong=True, is_refusal=True)


def _bad_key(credential: Credential) -> Fault:
    if credential.passphrase is None:
        sentence = f"the key {credential.key_file or 'in ~/.ssh'} is locked, or no private key"
        fix = "set `sshPassphrase`, or have the agent unlock it and leave `sshKeyFile` out"
    else:
        sentence, fix = f"`sshPassphrase` does not open the key {credential.key_file}", "correct it"
    return Fault(subject="login", sentence=sentence, fix=fix, is_wrong=True, is_refusal=True)
