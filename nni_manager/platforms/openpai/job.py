"""The job that is sent to OpenPAI for an attempt: one of our own, or the user's with each role's commands wrapped.

A job of our own does not contain the user's command. The command is on the storage, where neither YAML, nor ``<% %>``
templates, nor a shell changes it. In the user's own job, roles' commands stay in the job, as its templates are the
user's, too. The runner's token and the key of shared storage are `secrets` of the job, which OpenPAI masks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.job import JobSpec
from nni_manager.platform_kit.payload import write_private
from nni_manager.platforms.openpai.config import OpenpaiConfig
from nni_manager.platforms.openpai.states import USER_CODE
from nni_manager.shared_storage.shared_mount import KEY_VARIABLE
from trial_runner import protocol


class UserJob:
    """The user's own job.

    `copy`: path of the file's copy, made on first use, so that all trials run the same; None: read only.
    """

    def __init__(self, config: OpenpaiConfig, copy: Path | None) -> None:
        self._inline = config.openpai_config
        self._file = config.openpai_config_file
        self._copy = copy
        #: The job that `keep` read.
        self.kept: Mapping[str, Any] | None = None

    def keep(self) -> Mapping[str, Any] | None:
        """The user's job, after copying the file; None: there is none. Blocks. Raises InvalidInput or OSError."""
        if self._file is not None and self._copy is not None and not self._copy.exists():
            text = self._text(Path(self._file))
            write_private(self._copy, text.encode())
        self.kept = self.read()
        return self.kept

    def read(self) -> Mapping[str, Any] | None:
        """The user's job, read without copying; None: there is none. Blocks. Raises InvalidInput."""
        if self._file is None:
            return self._inline
        path = Path(self._file)
        if self._copy is not None and self._copy.exists():
            path = self._copy
        return _parsed(self._text(path))

    def _text(self, path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"openpaiConfigFile: {path} cannot be read: {error}") from None


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        job = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(f"openpaiConfigFile: is not valid YAML: {error}") from None
    roles = job.get("taskRoles") if isinstance(job, dict) else None
    if not isinstance(roles, dict) or not roles or not all(isinstance(its, dict) for its in roles.values()):
        raise InvalidInput("openpaiConfigFile: must contain a job with taskRoles, a mapping of names to roles")
    return job  # type: ignore[no-any-return]  # looked at above


#: The key in `extras` whose value identifies the job's experiment.
OURS = "nniManager"
_ROLE = "taskrole"
_IMAGE = "docker_image_0"
_INDEX = "$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"
#: OpenPAI puts a role's commands into a bash script that begins with this line.
_SCRIPT = "set -o errexit -o nounset -o pipefail"
_END = "END_OF_THE_COMMAND_OF_THIS_ROLE"

#: Shell text that starts the runner. Argument: shell text that names a process that does not report.
Start = Callable[[str], str]


def mark(spec: JobSpec) -> dict[str, str]:
    """The mark that identifies a job among jobs of the same name."""
    return {"experiment": spec.experiment_id, "nonce": spec.nonce}


def mark_in(config: Any) -> Mapping[str, Any]:
    """The mark of the job that was submitted as `config`; empty: it is not ours."""
    extras = config.get("extras") if isinstance(config, dict) else None
    found = extras.get(OURS) if isinstance(extras, dict) else None
    return found if isinstance(found, dict) else {}


def is_of(config: Any, spec: JobSpec) -> bool:
    """Whether the job submitted as `config` belongs to `spec`. Without a nonce, the nonce is not compared."""
    found = mark_in(config)
    return found.get("experiment") == spec.experiment_id and spec.nonce in ("", found.get("nonce"))


class Secrets:
    """The secrets of a job: name → value, and the shell text that passes them to the runner.

    OpenPAI masks them, and inserts them into the commands on the machine that runs these.
    """

    def __init__(self, spec: JobSpec, storage_key: str) -> None:
        """`storage_key`: key of shared storage; empty: it has none."""
        named = {
            "nniTrialToken": (protocol.ENV_TOKEN, spec.runner_environment.get(protocol.ENV_TOKEN)),
            "nniStorageKey": (KEY_VARIABLE, storage_key),
        }
        self.values = {name: value for name, (_, value) in named.items() if value}
        self.exports = "".join(f"export {named[name][0]}='<% $secrets.{name} %>'; " for name in self.values)


def own_job(config: OpenpaiConfig, spec: JobSpec, name: str, start: Start, secrets: Secrets) -> dict[str, Any]:
    """A job of our own, made of the section's fields."""
    storage, path = config.storage_config_name, config.container_storage_mount_point
    assert storage is not None and path is not None, "the section was validated"
    mount = {"name": storage, **_mount_path(storage, path)}
    job: dict[str, Any] = {
        "protocolVersion": 2,
        "name": name,
        "type": "job",
        "jobRetryCount": 0,
        "prerequisites": [{"type": "dockerimage", "uri": config.docker_image, "name": _IMAGE}],
        "taskRoles": {
            _ROLE: {
                "instances": 1,
                "completion": {"minFailedInstances": 1, "minSucceededInstances": -1},
                "taskRetryCount": 0,
                "dockerImage": _IMAGE,
                "resourcePerInstance": {
                    "gpu": spec.gpu_number or 0,
                    "cpu": config.trial_cpu_number,
                    "memoryMB": config.trial_memory_size,
                },
                "commands": [_command(secrets, start(""))],
            }
        },
        "extras": {"storages": [mount], "submitFrom": "submit-job-v2", OURS: mark(spec)},
    }
    return _with_common(job, config, secrets)


def users_job(
    user_job: Mapping[str, Any],
    config: OpenpaiConfig,
    spec: JobSpec,
    name: str,
    start: Start,
    secrets: Secrets,
    prelude: str = "",
) -> dict[str, Any]:
    """The user's job of protocol 2 with our names, commands and missing fields. `prelude`: lines before each role's
    commands; the reporting process also gets those of `spec`."""
    job = {**copy.deepcopy(dict(user_job)), "name": name}
    reporter = reporting_role(job, config)
    for role, its in job["taskRoles"].items():
        replica, before = f"{role}-{_INDEX}", prelude
        if role == reporter:
            before += spec.prelude
            many = int(its.get("instances", 1)) > 1
            replica = f"$([ {_INDEX} = 0 ] || echo {replica})" if many else ""
        text = before + "\n".join([_SCRIPT, *(str(command).strip() for command in its.get("commands", []))])
        if _END in text.splitlines():
            raise InvalidInput(f"openpaiConfig: taskRoles.{role}.commands: must not contain the line {_END}")
        given = f"{protocol.ENV_COMMAND}=$(cat <<'{_END}'\n{text}\n{_END}\n)\nexport {protocol.ENV_COMMAND}"
        its["commands"] = [f"{given}\n{_command(secrets, start(replica))}"]
    extras = job["extras"] = {"submitFrom": "submit-job-v2", **(job.get("extras") or {}), OURS: mark(spec)}
    storage = config.storage_config_name
    if storage is not None:
        known = extras.get("storages") or []
        if not any(isinstance(one, dict) and one.get("name") == storage for one in known):
            path = config.container_storage_mount_point or f"/mnt/{storage}"
            extras["storages"] = [*known, {"name": storage, **_mount_path(storage, path)}]
    return _with_common(job, config, secrets)


def require_one_task(job: Mapping[str, Any]) -> None:
    """Raises InvalidInput for a job of several tasks: a trial's folder on shared storage belongs to one task."""
    tasks = sum(int(its.get("instances", 1)) for its in job["taskRoles"].values())
    if tasks > 1:
        raise InvalidInput(
            f"sharedStorage: the job configuration has {tasks} tasks, but a trial's folder there belongs to one task;"
            " remove this section, and let tasks share a storage of OpenPAI (storageConfigName)"
        )


def reporting_role(job: Mapping[str, Any], config: OpenpaiConfig) -> str:
    """The reporting role: its first task reports. Raises InvalidInput."""
    roles = list(job["taskRoles"])
    chosen = config.reporter
    if chosen is None:
        return str(roles[0])
    if chosen not in roles:
        raise InvalidInput(f"reporter: the job has no task role '{chosen}'; it has {', '.join(map(str, roles))}")
    return chosen


def mount_point(config: OpenpaiConfig, user_job: Mapping[str, Any] | None) -> str:
    """The path of the storage in containers. Raises InvalidInput if neither section nor job sets it."""
    if config.container_storage_mount_point:
        return config.container_storage_mount_point
    extras = (user_job or {}).get("extras")
    listed = extras.get("storages") if isinstance(extras, dict) else None
    storages = [one for one in listed or [] if isinstance(one, dict) and one.get("name")]
    wanted = config.storage_config_name
    for one in storages:
        if wanted in (None, one["name"]):
            return str(one.get("mountPath") or f"/mnt/{one['name']}")
    if wanted:
        return f"/mnt/{wanted}"
    raise InvalidInput(
        "containerStorageMountPoint: is required, because the job configuration mounts no storage; add it, and"
        " storageConfigName"
    )


def _with_common(job: dict[str, Any], config: OpenpaiConfig, secrets: Secrets) -> dict[str, Any]:
    if config.virtual_cluster:
        job["defaults"] = {**(job.get("defaults") or {}), "virtualCluster": config.virtual_cluster}
    if secrets.values:
        job["secrets"] = {**(job.get("secrets") or {}), **secrets.values}
    return job


def _mount_path(storage: str, path: str) -> dict[str, str]:
    """The path field of a mount; empty: the storage is mounted there, or above it, by default."""
    usual = f"/mnt/{storage}"
    return {} if f"{path}/".startswith(f"{usual}/") else {"mountPath": path}


def _command(secrets: Secrets, start: str) -> str:
    """The command of a role's containers: a line of a bash script that would end at the first failure. It never exits
    with a code from 128 on: OpenPAI restarts jobs for most of those, without limit. No signal reaches it."""
    return f"{secrets.exports}c=0; ({start}) || c=$?; [ $c -lt 128 ] || c={USER_CODE}; exit $c"
