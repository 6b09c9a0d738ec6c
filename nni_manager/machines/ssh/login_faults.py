"""What went wrong with a login: errors of asyncssh and of the network in words, with what to do."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

import asyncssh

from nni_manager.machines.ssh.address import Credential
from nni_manager.machines.ssh.faults import Fault
from nni_manager.machines.ssh.host_keys import HostKeyJudge
from nni_manager.machines.ssh.user_config import KeyFiles

#: Seconds until one is logged in, from the first packet on.
CONNECT_S = 10.0


@dataclass(slots=True, kw_only=True)
class HostLogin:
    """A login to a host. `judge`: of its key; `key_files`: those of `~/.ssh/config`, None: it names none."""

    host: str
    port: int
    user: str
    credential: Credential = field(repr=False)
    judge: HostKeyJudge
    key_files: KeyFiles | None = None


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


def _refused(login: HostLogin) -> Fault:
    user, credential = login.user, login.credential
    if credential.password is not None:
        sentence, fix = f"the password of {user} is refused", "correct `password`"
    elif credential.key_file is not None:
        sentence = f"the key {credential.key_file} is refused for {user}"
        fix = f"add its public key to ~{user}/.ssh/authorized_keys there, or correct `sshKeyFile` or `user`"
    else:
        sentence = f"neither a key in ~/.ssh nor one of the agent is accepted for {user}"
        if login.key_files is not None and login.key_files.missing:
            sentence += f"; ~/.ssh/config names {' and '.join(login.key_files.missing)}, which cannot be read"
        fix = "set `sshKeyFile` or `password`, or start the manager where the agent's SSH_AUTH_SOCK is set"
    return Fault(subject="login", sentence=sentence, fix=fix, is_wrong=True, is_refusal=True)


def _bad_key(credential: Credential) -> Fault:
    if credential.passphrase is None:
        sentence = f"the key {credential.key_file or 'in ~/.ssh'} is locked, or no private key"
        fix = "set `sshPassphrase`, or have the agent unlock it and leave `sshKeyFile` out"
    else:
        sentence, fix = f"`sshPassphrase` does not open the key {credential.key_file}", "correct it"
    return Fault(subject="login", sentence=sentence, fix=fix, is_wrong=True, is_refusal=True)
