"""The start of a job: its record; its runner's environment, folder and files; and its process, or the files from which
its container is started."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import apart_ms
from nni_manager.domain.errors import SubmitRejected
from nni_manager.domain.job import JobSpec
from nni_manager.machines.keeper.jobs import KeeperJobs
from nni_manager.machines.ledger import Reservation
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.payload import checkpoint_beside, runner_archive, write_private
from nni_manager.platforms.scripted.config import Rule, ScriptedConfig
from nni_manager.platforms.scripted.jobs import Job, Jobs
from nni_manager.platforms.scripted.machines import ENV_MACHINE, machine_name
from nni_manager.platforms.scripted.states import NONE, PROCESS, number_of
from nni_manager.shared_storage.storage_folders import packed
from trial_runner import protocol
from trial_runner.wire import code_archive, removal
from trial_runner.wire.code_archive import BadArchive


class Processes(KeeperJobs):
    """The jobs of one service as processes. `jobs`: the cluster's jobs. Methods raise PlatformUnavailable."""

    def __init__(self, host: Host, jobs: Jobs) -> None:
        async def known(names: Collection[str]) -> Collection[str]:
            return await jobs.find(names)

        super().__init__(host, has_results=False, known=known)

    async def start(
        self,
        job_name: str,
        folder: Path,
        command: str,
        environment: Mapping[str, str],
        grace_s: float,
        reservation: Reservation | None,
    ) -> None:
        """Starts a process in `folder`, which is created. Also raises SubmitRejected."""
        await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        job = {
            "command": command,
            "environment": dict(environment),
            "directory": str(folder),
            "attempt_directory": str(folder),
            "files": {},
            "grace_s": grace_s,
        }
        await self.submit(job_name, job, reservation)

    async def find(self, names: Sequence[str]) -> dict[str, Observation]:
        """The keeper's reports on these jobs, as far as it has any."""
        return {name: report for name, report in (await self.reports(names)).items() if report is not self.unheard_of}

    def report_of(self, job: Mapping[str, Any]) -> Observation:
        """The keeper's report, with times since the epoch as the script uses them."""
        return super().report_of(job).dated(apart_ms())


log = logging.getLogger(__name__)


class Launch:
    """The starting of jobs. `processes`: None: jobs have no processes."""

    def __init__(self, config: ScriptedConfig, host: Host, jobs: Jobs, processes: Processes | None) -> None:
        self._config = config
        self._host = host
        self._jobs = jobs
        self._processes = processes

    def job(self, spec: JobSpec, rule: Rule, now_ms: int) -> Job:
        """The record of a job that is submitted now."""
        own_storage = self._jobs.folder / "storage"
        directory = system_directory(self._config, spec, self._jobs.folder_of(spec.name), own_storage)
        return Job(
            name=spec.name,
            rule=rule,
            submitted_ms=now_ms,
            attempt_directory=spec.attempt_directory,
            system_directory=str(directory),
            grace_s=spec.grace_period_s,
        )

    async def start(self, job: Job, spec: JobSpec, reservation: Reservation | None) -> None:
        """Starts a job; repeatable. Raises SubmitRejected, PlatformUnavailable and OSError."""
        if self._config.launch == NONE:
            return
        archive, directory = self._jobs.folder / ARCHIVE, Path(job.system_directory)
        await asyncio.to_thread(write_archive, archive)
        if is_read(self._config):
            code = await packed(self._host.code)
            for target in (directory, *replica_folders(directory, job.rule)):
                await asyncio.to_thread(fill_storage, target, spec.parameter_record, code)
        variables = environment(self._config, spec, directory, reservation)
        folder = self._jobs.folder_of(job.name)
        if self._processes is not None:
            command = process_command(archive, job.rule, directory, number_of(job.name))
            await self._processes.start(
                job.name,
                container_folder(folder),
                command,
                inherited(spec) | variables,
                job.grace_s,
                reservation,
            )
        elif await asyncio.to_thread(write_start_files, folder, archive, variables):
            log.info("job %s waits for its container: start it as %s says", job.name, folder / START_FILE)


ARCHIVE = "runner.pyz"
#: The user's starter renames the first file to the second before it starts a container, so that it is started once. To
#: withdraw it, we rename it to the third.
START_FILE = "start.json"
STARTED_FILE = "started.json"
STOPPED_FILE = "stopped.json"
ENVIRONMENT_FILE = "start.env"
#: Variables that a process gets from the submitter's environment; it gets no others.
_INHERITED = ("PATH", "HOME", "LANG")


def is_read(config: ScriptedConfig) -> bool:
    """Whether results may arrive through the shared folder."""
    return config.channel != protocol.PUSH


def system_directory(config: ScriptedConfig, spec: JobSpec, folder: Path, own_storage: Path) -> Path:
    """The folder that the runner works in, as the runner sees it.

    `folder`: the job's; `own_storage`: used if the config sets none.
    """
    attempt = Path(spec.attempt_directory).name
    if is_read(config):
        return Path(config.storage or own_storage) / spec.experiment_id / attempt
    if config.launch == PROCESS:
        return container_folder(folder) / "nni"
    return Path("/tmp/nni", spec.name)  # noqa: S108 - a path in a container


def container_folder(folder: Path) -> Path:
    """The new folder that a process starts in."""
    return folder / "container"


def environment(
    config: ScriptedConfig, spec: JobSpec, directory: Path, reservation: Reservation | None
) -> dict[str, str]:
    """The environment of the runner, including its token: never log it."""
    return {
        protocol.ENV_COMMAND: spec.command,
        protocol.ENV_GRACE_S: f"{spec.grace_period_s:g}",
        **spec.runner_environment,
        **spec.protocol_environment,
        protocol.ENV_PLATFORM: "scripted",
        protocol.ENV_SYSTEM_DIR: str(directory),
        **({protocol.ENV_CHECKPOINT_DIR: checkpoint_beside(str(directory))} if is_read(config) else {}),
        protocol.ENV_CHANNEL: config.channel,
        protocol.ENV_CODE: "present" if is_read(config) else "fetch",
        **_place(spec, reservation),
    }


def _place(spec: JobSpec, reservation: Reservation | None) -> dict[str, str]:
    if reservation is None:
        return {protocol.ENV_GPUS: ""} if spec.gpu_number == 0 else {}
    gpus = ",".join(map(str, reservation.places))
    return {protocol.ENV_GPUS: gpus, ENV_MACHINE: machine_name(reservation)}


def inherited(spec: JobSpec) -> dict[str, str]:
    """The variables that a process gets from the submitter's environment, or else from this process."""
    found = {name: spec.caller_environment.get(name) or os.environ.get(name, "") for name in _INHERITED}
    return {name: value for name, value in found.items() if value}


def process_command(archive: Path, rule: Rule, directory: Path, number: int = 0) -> str:
    """The command of a job's process, shell text. It delays itself, so that jobs start on time without the manager.

    The first of several replicas reports. The job ends with the first one's exit code, after all others have ended.
    `number`: of the job, as a batch system has it.
    """
    start = f"python3 {shlex.quote(str(archive))}"
    others = [
        f"{protocol.ENV_REPORTER}=0 {protocol.ENV_SYSTEM_DIR}={shlex.quote(str(replica))} {start} &"
        for replica in replica_folders(directory, rule)
    ]
    run = _run(start, rule, number) if not others else f"{' '.join(others)} {start}; code=$?; wait; exit $code"
    return f"sleep {rule.delay:g}; {run}" if rule.delay else run


#: Sends a signal after a number of seconds, and waits for the command.
_AFTER = "timeout --foreground --preserve-status -s"
#: Exit code of a runner that the platform ended.
_TAKEN = 143


def _run(start: str, rule: Rule, number: int) -> str:
    """The start of a runner, as a batch system does it: it announces an end, or ends the job and runs it again."""
    first = start if rule.notice is None else f"{_AFTER} USR1 {rule.notice:g} {start}"
    if rule.requeue is None:
        return f"exec {first}"
    first = f"SLURM_RESTART_COUNT=0 {_AFTER} TERM {rule.requeue:g} {first}"
    again = f"SLURM_RESTART_COUNT=1 exec {start}"
    return f"export SLURM_JOB_ID={number}; {first}; code=$?; [ $code = {_TAKEN} ] || exit $code; {again}"


def replica_folders(directory: Path, rule: Rule) -> list[Path]:
    """The folders of the other replicas. `directory`: the first one's."""
    return [directory / "replicas" / str(number) for number in range(1, rule.replicas)]


def write_archive(path: Path) -> None:
    """Writes the trial runner atomically, unless it exists. Blocks. Raises OSError."""
    archive = runner_archive()
    if path.exists() and path.read_bytes() == archive:
        return
    draft = path.with_name(f".{secrets.token_hex(4)}.tmp")  # several jobs may be submitted concurrently
    draft.write_bytes(archive)
    draft.replace(path)


def fill_storage(directory: Path, record: str, code: Path) -> None:
    """Writes parameters and code into a folder, for a runner that downloads neither. Blocks; repeatable.

    Raises OSError or SubmitRejected.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(directory / protocol.PARAMETER_FILE, record.encode(errors="surrogateescape"))
    target, draft = directory / protocol.CODE_FOLDER, directory / ".code"
    if target.exists():
        return
    removal.remove(str(draft))
    try:
        code_archive.unpack(str(code), str(draft))
    except BadArchive as error:
        raise SubmitRejected(
            f"the code archive {code} cannot be unpacked: {error}; create the experiment again"
        ) from error
    draft.replace(target)


def write_start_files(folder: Path, archive: Path, variables: Mapping[str, str]) -> bool:
    """Writes the start files of a container. False: they existed already. Blocks. Raises OSError and SubmitRejected.

    Only their owner can read the files: the environment contains the token.
    """
    if any((folder / name).exists() for name in (START_FILE, STARTED_FILE, STOPPED_FILE)):
        return False
    broken = next((name for name, value in variables.items() if "\n" in value or "\r" in value), None)
    if broken is not None:
        raise SubmitRejected(f"{broken}: has several lines; the environment file has one line per variable")
    lines = "".join(f"{name}={value}\n" for name, value in variables.items())
    write_private(folder / ENVIRONMENT_FILE, lines.encode(errors="surrogateescape"))
    entry = {
        "command": ["python3", str(archive)],
        "runner": str(archive),
        "environmentFile": str(folder / ENVIRONMENT_FILE),
        "systemDirectory": variables[protocol.ENV_SYSTEM_DIR],
    }
    write_private(folder / START_FILE, f"{json.dumps(entry, indent=2)}\n".encode())
    return True


def take_back(folder: Path) -> bool:
    """Withdraws a container's start files. False: it was already started. Blocks. Raises OSError."""
    try:
        (folder / START_FILE).rename(folder / STOPPED_FILE)
    except FileNotFoundError:
        return False
    return True
