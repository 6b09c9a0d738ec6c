"""Shared storage that a job's container mounts itself, before the trial runs there.

The text that mounts it may be readable by others, and contains no secret: the platform passes an account's key to the
container in the variable `shared_mount.KEY_VARIABLE`, which the trial does not get. Storage that the container has
mounted already is used as it is.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.evidence import EXIT_NOT_MOUNTED, NOT_THERE, of_storage
from nni_manager.domain.experiment import Json
from nni_manager.domain.job import JobSpec, JobState
from nni_manager.shared_storage.shared_folder import SharedFolder
from nni_manager.shared_storage.shared_mount import KEY_VARIABLE, REMOTE_FIELD

#: Seconds for mounting in a container: an unreachable server blocks every access to its mount.
_PATIENCE_S = 60
#: Exit codes of `timeout` after that time: GNU's, and BusyBox's, which is the command's.
_TOO_LATE = "124 | 143"
_END = "END_OF_THE_STORAGE_PROGRAM"
_UNTOLD = "the container could not mount the storage there, and its message did not arrive; see the job's log"


def check(storage: Json | None, service: str) -> None:
    """Raises InvalidInput for storage with an unknown path in containers."""
    if storage is not None and not str(storage["remoteMountPoint"]).startswith("/"):
        raise InvalidInput(f"{REMOTE_FIELD}: jobs of {service} need a full path, such as /mnt/nni; write one")


@dataclass(frozen=True, slots=True)
class OwnMount:
    """Two parts of shell text: `mount` ends a container that cannot mount the storage, with `EXIT_NOT_MOUNTED` and a
    sentence; `prelude`, before the trial's command, changes to its folder there."""

    mount: str = ""
    prelude: str = ""


def explained(report: Observation) -> Observation | None:
    """The report on a job whose container could not mount the storage; None: it ended for another reason."""
    if report.exit_code != EXIT_NOT_MOUNTED or report.state is not JobState.FAILED:
        return None
    told = of_storage(report)
    return replace(report, message=f"{REMOTE_FIELD}: {_UNTOLD}") if told is report else told


async def prepared(shared: SharedFolder, spec: JobSpec, otherwise: str) -> OwnMount:
    """The shell text of a job's container, after creating the trial's folder on the storage. `otherwise`: advice for
    jobs that cannot mount it. Raises PlatformUnavailable and SubmitRejected."""
    await shared.place(spec)
    program = shared.program_elsewhere("use", await shared.ready(), otherwise)
    there = shared.there(shared.remote_point)
    named = shared.environment(spec.name, there).items()
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in named)
    away = f"{shared.remote_point} gives no answer within {_PATIENCE_S} s; check the storage's server"
    said = f"case $? in {_TOO_LATE}) echo {shlex.quote(f'{NOT_THERE} {away}; {otherwise}')} >&2 ;; esac"
    run = f"timeout {_PATIENCE_S} python3 -I -W ignore - <<'{_END}' || {{ {said}; exit {EXIT_NOT_MOUNTED}; }}"
    mount = f"{run}\n{program}\n{_END}\nunset {KEY_VARIABLE}\n"
    return OwnMount(mount, f"{exports}{shared.prelude(spec, there, 'python3')}")
