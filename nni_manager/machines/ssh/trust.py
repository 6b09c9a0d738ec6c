"""Keys of machines that are not known yet, for a person to judge; nothing here trusts one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nni_manager.machines.ssh.address import ACCEPT_NEW, Entry
from nni_manager.machines.ssh.faults import MachineFault
from nni_manager.machines.ssh.known_hosts import HostKey, remember
from nni_manager.machines.ssh.login import log_in

__all__ = ["MachineFault", "remember", "unknown_key"]


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
