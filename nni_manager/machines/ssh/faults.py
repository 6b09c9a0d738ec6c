"""Faults of a machine: what was checked, what was found, what to do; for preflight, logs and waits."""

from __future__ import annotations

from dataclasses import dataclass

from nni_manager.domain.errors import BadCredentials, PlatformError, PlatformUnavailable
from nni_manager.machines.ssh.known_hosts import HostKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a machine. `subject`: address, port, host key, login, jump host, python, …"""

    subject: str
    sentence: str
    fix: str = ""
    #: A user must act; otherwise it may pass.
    is_wrong: bool = False
    #: The login or host key was refused: repeated attempts could lock the account.
    is_refusal: bool = False
    #: The unknown key that was shown.
    unknown_key: HostKey | None = None

    def __str__(self) -> str:
        return f"{self.sentence}; {self.fix}" if self.fix else self.sentence

    def error(self, host: str) -> PlatformError:
        text = f"{host}: {self.subject}: {self}"
        return BadCredentials(text) if self.is_refusal else PlatformUnavailable(text, refused=True)


class MachineFault(Exception):
    """An error that carries the fault of a machine."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault
