"""Shared storage on a machine: a program that runs there checks, mounts and leaves it.

The keeper does not touch the storage, as every access to it blocks while its server is gone. The program has a login of
its own, because a server may allow one session per login.
"""

from __future__ import annotations

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.bootstrap import first_line
from nni_manager.machines.ssh.faults import MachineFault
from nni_manager.machines.ssh.login import log_in
from nni_manager.shared_storage.shared_folder import SharedFolder
from nni_manager.shared_storage.shared_mount import ANSWER_S, REMOTE_FIELD, Mark, MountAnswer, answer_of


async def ask(entry: Entry, text: str) -> MountAnswer:
    """The answer of a machine about shared storage. `text`: of `SharedFolder.program_elsewhere`.

    Raises MachineFault or PlatformUnavailable.
    """
    connection = await log_in(entry.address, entry.credential)
    try:
        return answer_of(await first_line(connection, text, python_path=entry.python_path, limit_s=ANSWER_S))
    except ValueError as error:
        raise PlatformUnavailable(f"{REMOTE_FIELD}: it could not be looked at ({error})", refused=True) from error
    finally:
        connection.abort()


async def use(entry: Entry, shared: SharedFolder, mark: Mark) -> str:
    """Makes sure that a machine has mounted the storage and shows the mark; answers where, absolute. Raises
    PlatformError."""
    answer = await _asked(entry, shared.program_elsewhere("use", mark))
    answer.require(REMOTE_FIELD)
    return answer.point


async def leave(entry: Entry, shared: SharedFolder) -> str:
    """Unmounts the storage that we have mounted on a machine for the experiment; answers why not, empty: it did.

    Raises PlatformError.
    """
    return (await _asked(entry, shared.program_elsewhere("leave"))).sentence


async def _asked(entry: Entry, text: str) -> MountAnswer:
    try:
        return await ask(entry, text)
    except MachineFault as error:
        raise error.fault.error(entry.address.host) from error
