"""Failed logins: errors of asyncssh and of the network as messages, with what to do."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import asyncssh

from nni_manager.machines.ssh.address import Credential
from nni_manager.machines.ssh.faults import Fault
from nni_manager.machines.ssh.host_keys import HostKeyJudge
from nni_manager.machines.ssh.user_config import UserConfig

#: Seconds until an SSH server has answered, and until the login succeeds: a directory service may take long.
CONNECT_S, LOGIN_S = 10.0, 30.0


@dataclass(slots=True, kw_only=True)
class HostLogin:
    """A login to a host, and its progress. `judge`: checks its key; `config`: None: not read yet."""

    host: str
    port: int
    user: str
    credential: Credential = field(repr=False)
    judge: HostKeyJudge
    config: UserConfig | None = None
    #: The credential's private key, unlocked.
    keys: Sequence[asyncssh.SSHKeyPair] = field(default=(), repr=False)
    connection: asyncssh.SSHClientConnection | None = None
    #: Addresses of a name of several hosts that accept connections, but have sent nothing.
    silent: list[str] = field(default_factory=list)

    @property
    def connect_s(self) -> float:
        """Seconds until a server has answered: through another host, as many as for a login."""
        assert self.config is not None, "it is read first"
        return self.login_s if self.config.is_indirect else max(CONNECT_S, self.config.connect_s)

    @property
    def login_s(self) -> float:
        """Seconds until the login must succeed."""
        assert self.config is not None, "it is read first"
        return max(LOGIN_S, self.config.connect_s)

    @property
    def has_answered(self) -> bool:
        """Whether a server has identified itself, even if it was asked for another key since."""
        answer = self.connection and self.connection.get_extra_info("server_version")
        return self.judge.offered is not None or answer is not None


def login_fault(error: Exception, login: HostLogin) -> Fault:
    """The fault for an error of a login."""
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
            sentence = f"{error.filename}, which ~/.ssh/config names, is not usable ({error.strerror})"
            return Fault(subject="login", sentence=sentence, fix="correct it there", is_wrong=True)
        case asyncssh.ConfigParseError():
            return _unread_config(error)
        case socket.gaierror():
            return Fault(
                subject="address",
                sentence=f"the name {host} cannot be resolved ({error.strerror})",
                fix="correct `host`, or check the name service",
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
                sentence=f"its SSH server closed the connection ({error.reason or 'no message'})",
                fix=f"check whether an SSH server answers at port {port}, and read its log",
            )
        case OSError():
            return Fault(subject="address", sentence=f"it is unreachable ({error.strerror or error})")
        case _:
            return Fault(subject="login", sentence=f"the login failed ({error})", is_wrong=True)


def _unread_config(error: asyncssh.ConfigParseError) -> Fault:
    return Fault(
        subject="login",
        sentence=f"the manager's SSH library (asyncssh) cannot read a line of your SSH configuration: {error}",
        fix="`ssh` may accept it; write it in a form that both read (a time as a number of seconds, the command of"
        " `Match exec` as a script without `=`), or move it to a `Host` block of other machines",
        is_wrong=True,
    )


def _late(login: HostLogin) -> Fault:
    """The fault of a login that took too long, by its progress."""
    if login.config is None:
        sentence = f"reading ~/.ssh/config took longer than {CONNECT_S:.0f} s (timeout)"
        return Fault(subject="login", sentence=sentence, fix="check the commands in its `Match exec` lines")
    if login.has_answered:
        sentence = f"its SSH server answers, but did not log {login.user} in within {login.login_s:.0f} s (timeout)"
        fix = (
            "read its log: its directory of users or its name service (`UseDNS`) is slow; or set a longer"
            " `ConnectTimeout` in ~/.ssh/config"
        )
        return Fault(subject="login", sentence=sentence, fix=fix)
    if login.silent or login.connection is not None:
        port = f"port {login.port} of {' and '.join(login.silent)}" if login.silent else f"port {login.port}"
        sentence = f"{port} accepts connections, but no SSH server answered in {login.connect_s:.0f} s (timeout)"
        return Fault(
            subject="port", sentence=sentence, fix="check whether an SSH server has that port, and read its log"
        )
    return Fault(
        subject="port",
        sentence=f"no answer from port {login.port} within {login.connect_s:.0f} s (timeout)",
        fix="check that the machine is on, and that no firewall drops packets to it",
    )


def _refused(login: HostLogin) -> Fault:
    user, credential = login.user, login.credential
    if credential.password is not None:
        sentence, fix = f"the password of {user} was refused", "correct `password`"
    elif credential.key_file is not None:
        sentence = f"the key {credential.key_file} was refused for {user}"
        fix = f"add its public key to ~{user}/.ssh/authorized_keys there, or correct `sshKeyFile` or `user`"
    else:
        sentence = f"no key in ~/.ssh or in the agent was accepted for {user}"
        if login.config is not None and login.config.key_files is not None and login.config.key_files.missing:
            sentence += f"; ~/.ssh/config names {' and '.join(login.config.key_files.missing)}, which cannot be read"
        fix = "set `sshKeyFile` or `password`, or start the manager with the agent's SSH_AUTH_SOCK"
    return Fault(subject="login", sentence=sentence, fix=fix, is_wrong=True, is_refusal=True)


def _bad_key(credential: Credential) -> Fault:
    if credential.passphrase is None:
        sentence = f"the key {credential.key_file or 'in ~/.ssh'} is locked, or not a private key"
        fix = "set `sshPassphrase`, or add the key to the agent and remove `sshKeyFile`"
    else:
        sentence, fix = f"`sshPassphrase` does not open the key {credential.key_file}", "correct it"
    return Fault(subject="login", sentence=sentence, fix=fix, is_wrong=True, is_refusal=True)
