"""Shared storage of the jobs of Azure ML: their container mounts it, or has it mounted, before the trial runs there.

Only NFS: the program that mounts it is in the attempt's folder, readable for others, and must hold no secret.
"""

from __future__ import annotations

import dataclasses
import shlex

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import Json
from nni_manager.domain.job import JobSpec
from nni_manager.shared_storage.shared_folder import SharedFolder
from nni_manager.shared_storage.shared_mount import REMOTE_FIELD
from trial_runner import protocol

KINDS = frozenset({"NFS"})
#: The program in the attempt's folder that sees to the mount.
PROGRAM_FILE = "nni-storage.py"


def check(storage: Json | None) -> None:
    """Raises InvalidInput for storage with an unknown path in containers."""
    if storage is not None and not str(storage["remoteMountPoint"]).startswith("/"):
        raise InvalidInput(f"{REMOTE_FIELD}: jobs of aml need a full path, such as /mnt/nni; write one")


async def prepared(shared: SharedFolder, spec: JobSpec) -> tuple[JobSpec, str]:
    """The job that works on shared storage, and the text of the program that mounts it there.

    Raises PlatformUnavailable and SubmitRejected.
    """
    await shared.place(spec)
    mark = await shared.ready()
    there = shared.there(shared.remote_point)
    own = shared.environment(spec.name, there)
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in own.items())
    # its answer is for people: whether the storage is there, the mark says that the command looks for
    mount = f'python3 -I -W ignore "${protocol.ENV_SYSTEM_DIR}/{PROGRAM_FILE}" >&2\n'
    command = mount + exports + shared.command(spec, there, "python3")
    return dataclasses.replace(spec, command=command), shared.program_elsewhere("use", mark)
