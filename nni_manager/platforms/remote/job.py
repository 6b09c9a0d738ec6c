"""The request of a job to a machine's keeper: its folder, its command and its environment."""

from __future__ import annotations

import dataclasses
import json
from pathlib import PurePosixPath
from typing import Any

from nni_manager.domain.ids import attempt_directory_of
from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.machines.gpu_machines import gpu_environment
from nni_manager.machines.keeper.jobs import spawn_request
from nni_manager.machines.ledger import Reservation
from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.bootstrap import Greeting
from nni_manager.platform_kit.payload import directory_environment
from nni_manager.shared_storage.shared_folder import SharedFolder
from trial_runner import protocol

#: Variables of the session that logged in, which trials do not get.
OF_THE_SESSION = frozenset(
    {"SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_ORIGINAL_COMMAND", "OLDPWD", "PWD", "SHLVL"}
)


def request(
    spec: JobSpec,
    entry: Entry,
    greeting: Greeting,
    reservation: Reservation | None,
    *,
    folder: str,
    archive: str,
    sha256: str,
) -> dict[str, Any]:
    """The request of a job. `folder`: of the experiment on the machine; `archive`: its code, of that SHA-256."""
    code = f"{attempt_folder(folder, spec.name)}/{protocol.CODE_FOLDER}"
    told = _request(spec, entry, greeting, reservation, folder=folder, code=code)
    return {**told, "code": {"archive": archive, "folder": code, "sha256": sha256}}


def request_on_storage(
    spec: JobSpec,
    entry: Entry,
    greeting: Greeting,
    reservation: Reservation | None,
    *,
    folder: str,
    shared: SharedFolder,
    there: str,
) -> dict[str, Any]:
    """The request of a job that works on shared storage; `there`: the experiment's folder on it."""
    own = shared.environment(spec.name, there)
    told = _request(spec, entry, greeting, reservation, folder=folder, code=own[protocol.ENV_CODE_DIR])
    spec = dataclasses.replace(spec, command=told["command"])
    return {
        **told,
        # the command goes to its code itself: a folder on storage that hangs would hold up the keeper
        "command": shared.command(spec, there, greeting.interpreter),
        "directory": "/",
        "environment": {**told["environment"], **own},
    }


def _request(
    spec: JobSpec, entry: Entry, greeting: Greeting, reservation: Reservation | None, *, folder: str, code: str
) -> dict[str, Any]:
    attempt = attempt_folder(folder, spec.name)
    return spawn_request(
        spec,
        command=command(spec.command, entry.pre_command),
        directory=code,
        attempt_directory=attempt,
        environment=_environment(spec, entry, greeting, attempt, code) | gpu_environment(spec, reservation),
    )


def attempt_folder(folder: str, job_name: str) -> str:
    return f"{folder}/trials/{attempt_directory_of(job_name)}"


def handle_of(job_name: str, machine: str, folder: str) -> JobHandle:
    """The handle of a job. `folder`: of the attempt; empty: not known, as the machine was away."""
    data = json.dumps({"machine": machine, "folder": folder})
    return JobHandle(platform="remote", version=1, job_name=job_name, data=data)


def place_of(handle: JobHandle) -> tuple[str, str]:
    """The machine's key and the attempt's folder there, as a job's handle has them."""
    data = json.loads(handle.data)
    return data["machine"], data["folder"]


def command(command: str, before: str) -> str:
    """The trial's command after `preCommand`; a failure of that fails the trial."""
    if not before:
        return command
    return f"{before.rstrip()}\n_nni_status=$?; [ $_nni_status = 0 ] || exit $_nni_status\n{command}"


def _environment(spec: JobSpec, entry: Entry, greeting: Greeting, attempt: str, code: str) -> dict[str, str]:
    """The environment of a trial: that of the machine's own user, then the trial protocol."""
    own = {name: value for name, value in greeting.environment.items() if name not in OF_THE_SESSION}
    if entry.python_path:
        own["PATH"] = f"{folder_of_python(entry.python_path, greeting.home)}:{own.get('PATH', '/usr/bin:/bin')}"
    stand_in = f"{greeting.program}/{protocol.__name__.partition('.')[0]}/stand_in"
    path = own.get("PYTHONPATH")
    return {
        **own,
        "PYTHONPATH": f"{path}:{stand_in}" if path else stand_in,
        **spec.protocol_environment,
        **directory_environment(attempt, code),
        protocol.ENV_PLATFORM: "remote",
        protocol.ENV_COMMAND_CHANNEL: protocol.COMMAND_CHANNEL,
    }


def folder_of_python(python_path: str, home: str) -> str:
    """The folder that is put in front of PATH: where `pythonPath` names an interpreter, the folder it is in."""
    path = f"{home}/{python_path[2:]}" if python_path.startswith("~/") else python_path
    name = PurePosixPath(path).name
    return str(PurePosixPath(path).parent) if name.startswith("python") and "/bin/" in path else path
