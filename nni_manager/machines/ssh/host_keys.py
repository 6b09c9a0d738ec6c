"""The check of a machine's host key that `known_hosts` lacks, and the message if it is refused."""

from __future__ import annotations

import logging
import shlex

import asyncssh
from asyncssh.public_key import get_default_public_key_algs

from nni_manager.machines.ssh import known_hosts
from nni_manager.machines.ssh.address import ACCEPT_NEW, DEFAULT_PORT
from nni_manager.machines.ssh.faults import Fault
from nni_manager.machines.ssh.known_hosts import HostKey, KnownHosts, Matched

log = logging.getLogger(__name__)

#: Algorithms of host keys without a certificate, including those of RSA keys, which are all named ``ssh-rsa``.
_PLAIN = tuple(name.decode() for name in get_default_public_key_algs())
_OF_RSA = ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa")
_FINGERPRINT = "SHA256:"
_IF_SEVERAL = (
    "if several machines answer to this name, list all their fingerprints as `hostKey`, separated by commas; otherwise"
    " the connection is intercepted"
)
#: asyncssh's reason for a certificate of an untrusted authority.
_UNKNOWN_AUTHORITY = "Host CA key is not trusted"


class HostKeyJudge:
    """The check of a key that `known_hosts` lacks. `wanted`: `hostKey` of the config."""

    def __init__(self, host: str, port: int, wanted: str | None) -> None:
        self._command = f"ssh {shlex.quote(host)}" if port == DEFAULT_PORT else f"ssh -p {port} {shlex.quote(host)}"
        self._host = host
        self._port = port
        self._wanted = wanted
        #: Of `wanted`: one, or those of all machines behind one name.
        self._fingerprints = {one.strip() for one in (wanted or "").split(",") if one.strip().startswith(_FINGERPRINT)}
        self.known = KnownHosts(of_user=(), of_machine=())
        self.offered: asyncssh.SSHKey | None = None
        self._refused: list[str] = []
        self._known_algorithms: set[str] = set()
        self._unwritten = ""
        #: Algorithms to request from the server, which may have several keys; empty: those of known keys, or all.
        self.algorithms = self._wanted_algorithms()

    def _wanted_algorithms(self) -> list[str]:
        word = (self._wanted or "").split(" ")[0]
        if word in ("", ACCEPT_NEW) or self._fingerprints:
            return []
        return list(_OF_RSA) if word == "ssh-rsa" else [word]

    def match(self, host: str, address: str, port: int | None) -> Matched:
        """The entries of a host in the files of known hosts, in asyncssh's form."""
        found = self.known.match(host, address, port)
        self._known_algorithms = {name.decode() for key in found[0] for name in key.sig_algorithms}
        return found

    def asks_for_another(self, reason: str) -> bool:
        """Whether the server, whose key was refused, may also have the right one: `algorithms` then request it.

        A certificate of an unknown authority counts as none, as for `ssh`.
        """
        if self.offered is None and reason.startswith(_UNKNOWN_AUTHORITY) and not self.algorithms:
            self.algorithms = sorted(_PLAIN, key=lambda name: name not in self._known_algorithms)
            return True
        if self.offered is None or not self._fingerprints or self._is_revoked():
            return False
        tried = [name.decode() for name in self.offered.sig_algorithms]
        self.algorithms = [name for name in self.algorithms or _PLAIN if name not in tried]
        return bool(self.algorithms)

    def accepts(self, key: asyncssh.SSHKey, host: str, port: int) -> bool:
        """Whether a host's key is accepted. `host`, `port`: as resolved by ~/.ssh/config."""
        self._host, self._port, self.offered = host, port, key
        if self.known.alias:  # without a port, as in `ssh`
            self._host, self._port = self.known.alias, DEFAULT_PORT
        if self._wanted is None or self._is_revoked():
            return False
        if self._wanted == ACCEPT_NEW:
            return not self._is_known() and self._remember(key)
        if self._fingerprints:
            self._refused.append(key.get_fingerprint())
            return key.get_fingerprint() in self._fingerprints
        return key.export_public_key().decode().split()[:2] == self._wanted.split()[:2]

    @property
    def is_content(self) -> bool:
        """Whether the last checked key was not refused by the config's fingerprint."""
        return not self._refused or self._refused[-1] in self._fingerprints

    def fault(self, reason: str) -> Fault:
        """`reason`: asyncssh's, which does not identify revoked keys."""
        unknown = None
        shown = self.offered.get_fingerprint() if self.offered is not None else f"({reason})"
        if self.known.revoked.problem:
            sentence = f"revoked host keys cannot be read ({self.known.revoked.problem})"
            fix = "correct RevokedHostKeys in ssh_config: without that file every host key is refused, as in `ssh`"
        elif "revoked" in reason.lower() or self._is_revoked():
            sentence = "its key is revoked in known_hosts or in a file of RevokedHostKeys"
            fix = "create a new host key on the machine: the revoked one may be known to others"
        elif self._unwritten:
            sentence = f"its key {shown} cannot be stored in {self.known.written} ({self._unwritten})"
            fix = f"check the permissions of that file, or write `hostKey: {shown}` next to its `host`"
        elif self._wanted not in (None, ACCEPT_NEW):
            sentence = f"the machine's key is {' or '.join(self._refused) or shown}, not the `hostKey` of the config"
            fix = f"if the machine was reinstalled, correct `hostKey`; {_IF_SEVERAL}"
        elif self._is_known():
            sentence = f"its key has changed: {shown} is not the one in known_hosts"
            fix = (
                f"if the machine was reinstalled, run `ssh-keygen -R {shlex.quote(self._place)}` and log in once"
                f" with `ssh`; {_IF_SEVERAL}"
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
                f" experiment file, log in once with `{self._command}`, or write `hostKey: {shown}` next to its `host`;"
                f" `hostKey: {ACCEPT_NEW}` accepts the first key, as"
                " `ssh -o StrictHostKeyChecking=accept-new` does"
            )
        return Fault(
            subject="host key", sentence=sentence, fix=fix, is_wrong=True, is_refusal=True, unknown_key=unknown
        )

    def _remember(self, key: asyncssh.SSHKey) -> bool:
        """Adds a key to `known_hosts`, as `ssh` does, for the next login; returns whether that succeeded."""
        shown = HostKey.of(key, self._host, self._port, self.known.written)
        try:
            known_hosts.remember(shown)
        except OSError as error:
            self._unwritten = error.strerror or str(error)
            return False
        log.info("the key %s of %s was added to %s", shown.fingerprint, shown.place, shown.file)
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
