"""The container of one task: contents and process 1."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes import sandbox
from tests.fakes.openpai import exits, own_mounts, protocol
from tests.fakes.openpai.own_mounts import Image, Network
from tests.fakes.sandbox import Container, Mount

_HOME = "/usr/local/pai"
#: Process 1: bash without a trap and without `exec`, which waits for its child.
_RUNTIME = f"""\
#!/bin/bash
set -o errexit -o nounset -o pipefail
export PAI_WORK_DIR="$(pwd)"
{_HOME}/runtime.d/runtime_entry.sh
"""
#: The command's output goes through pipes to logs. After a success it ends with the pipes, else with the command.
_ENTRY = f"""\
#!/bin/bash
set -o errexit -o nounset -o pipefail
cd {_HOME}/logs
# what handles a failure takes its time, in which the last output reaches the log
trap 'code=$?; [ $code = 0 ] || {{ (sleep 2; kill $loggers) & wait $loggers || true; }}; exit $code' EXIT
mkfifo out err
tee -a user-all < out &
loggers=$!
tee -a user-all < err >&2 &
loggers="$loggers $!"
cd "$PAI_WORK_DIR"
{_HOME}/runtime.d/user.sh > {_HOME}/logs/out 2> {_HOME}/logs/err &
user=$!
wait $user
wait $loggers
"""
_USER = "#!/bin/bash\nset -o errexit\nset -o nounset\nset -o pipefail\n\n# the job's commands\n"


@dataclass(frozen=True, slots=True)
class Storage:
    """`folder`: a local folder. Without `share`, each user has a separate folder."""

    folder: str
    share: bool = True
    readOnly: bool = False
    #: Mount of the cluster, if the storage is NFS.
    server: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Environment of containers.

    `storages`: mounts of the cluster; `shared`: folder for files shared by containers; others: mounts by containers.
    """

    storages: Mapping[str, Storage]
    network: Network
    image: Image
    shared: Path


def start(folder: Path, user: str, job: Mapping[str, Any], role: str, index: int, place: Place) -> None:
    """`folder`: of this attempt of this task."""
    logs = folder.with_name(f"{folder.name}-logs")
    logs.mkdir(parents=True, exist_ok=True)
    files = {
        f"{_HOME}/runtime": _RUNTIME,
        f"{_HOME}/runtime.d/runtime_entry.sh": _ENTRY,
        f"{_HOME}/runtime.d/user.sh": _USER + protocol.commands(job, role),
        **own_mounts.files(place.image, place.network),
    }
    mounts = [Mount(logs, Path(_HOME) / "logs"), *_mounts(user, job, place.storages)]
    environment = _environment(user, job, role, index)
    own = folder.with_name(f"{folder.name}-sbin")
    steps = tuple(own_mounts.steps(own, place.shared, place.image, place.network))
    rights = place.image.capabilities
    sandbox.start(Container(folder, [f"{_HOME}/runtime"], environment, mounts, files, "/", steps, rights))


def ended(folder: Path) -> tuple[int, dict[str, Any] | None] | None:
    """The cluster's exit code and the runtime's message; None while it runs."""
    code = sandbox.exit_code(folder)
    if code is None:
        return None
    log = folder.with_name(f"{folder.name}-logs") / "user-all"
    return exits.replaced(code, log.read_text(errors="replace") if log.exists() else "")


def _mounts(user: str, job: Mapping[str, Any], storages: Mapping[str, Storage]) -> list[Mount]:
    mounts = []
    for wanted in (job.get("extras") or {}).get("storages", []):
        storage, target = storages[wanted["name"]], Path(wanted.get("mountPath") or f"/mnt/{wanted['name']}")
        source = Path(storage.folder) if storage.share else Path(storage.folder) / user
        source.mkdir(parents=True, exist_ok=True)
        mounts.append(Mount(source, target, storage.readOnly))
    return mounts


def _environment(user: str, job: Mapping[str, Any], role: str, index: int) -> dict[str, str]:
    roles, name = job["taskRoles"], f"{user}~{job['name']}"
    resources = roles[role]["resourcePerInstance"]
    environment = {
        "PAI_FRAMEWORK_NAME": name,
        "PAI_JOB_NAME": name,
        "PAI_USER_NAME": user,
        "PAI_USERNAME": user,
        "PAI_TASK_ROLE_COUNT": str(len(roles)),
        "PAI_TASK_ROLE_LIST": ",".join(roles),
        "PAI_VIRTUAL_CLUSTER": (job.get("defaults") or {}).get("virtualCluster", "default"),
        "PAI_CURRENT_TASK_ROLE_NAME": role,
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(index),
        "PAI_TASK_INDEX": str(index),
        "FC_TASK_INDEX": str(index),
        "FC_TASKROLE_NAME": role,
        "FC_POD_UID": str(uuid.uuid4()),
    }
    environment |= {f"PAI_TASK_ROLE_TASK_COUNT_{one}": str(roles[one].get("instances", 1)) for one in roles}
    return environment | ({"NVIDIA_VISIBLE_DEVICES": "none"} if resources["gpu"] == 0 else {})
