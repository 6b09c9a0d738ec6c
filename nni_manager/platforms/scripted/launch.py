"""The start of a job: its record, its runner's files, and its process or the start files of its container."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import apart_ms
from nni_manager.domain.errors import InvalidInput, SubmitRejected
from nni_manager.domain.job import JobSpec
from nni_manager.machines.keeper.jobs import KeeperJobs
from nni_manager.machines.ledger import Reservation
from nni_manager.platform_kit.contract import Host
from nni_manager.platforms.scripted import runner
from nni_manager.platforms.scripted.config import Rule, ScriptedConfig
from nni_manager.platforms.scripted.jobs import Job, Jobs
from nni_manager.platforms.scripted.script import NONE


class Processes(KeeperJobs):
    """The jobs of one service as processes. `jobs`: those that the cluster knows. Methods raise PlatformUnavailable."""

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
        """Starts a process in `folder`, which is made. Raises SubmitRejected, too."""
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
        """The keeper's reports on these jobs, where it has one."""
        return {name: report for name, report in (await self.reports(names)).items() if report is not self.unheard_of}

    def report_of(self, job: Mapping[str, Any]) -> Observation:
        """The keeper's report with times since the epoch, as the script uses them."""
        return super().report_of(job).dated(apart_ms())


log = logging.getLogger(__name__)


class Launch:
    """The starting of jobs. `processes`: None where jobs are no processes."""

    def __init__(self, config: ScriptedConfig, host: Host, jobs: Jobs, processes: Processes | None) -> None:
        self._config = config
        self._host = host
        self._jobs = jobs
        self._processes = processes

    def job(self, spec: JobSpec, rule: Rule, now_ms: int) -> Job:
        """The record of a job that is submitted now."""
        own_storage = self._jobs.folder / "storage"
        directory = runner.system_directory(self._config, spec, self._jobs.folder_of(spec.name), own_storage)
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
        archive, directory = self._jobs.folder / runner.ARCHIVE, Path(job.system_directory)
        await asyncio.to_thread(runner.write_archive, archive)
        if runner.is_read(self._config):
            code = await self._code()
            for target in (directory, *runner.replica_folders(directory, job.rule)):
                await asyncio.to_thread(runner.fill_storage, target, spec.parameter_record, code)
        variables = runner.environment(self._config, spec, directory, reservation)
        folder = self._jobs.folder_of(job.name)
        if self._processes is not None:
            command = runner.process_command(archive, job.rule, directory)
            await self._processes.start(
                job.name,
                runner.container_folder(folder),
                command,
                runner.inherited(spec) | variables,
                job.grace_s,
                reservation,
            )
        elif await asyncio.to_thread(runner.write_start_files, folder, archive, variables):
            log.info("job %s waits for its container: start it as %s says", job.name, folder / runner.START_FILE)

    async def _code(self) -> Path:
        try:
            return await self._host.code()
        except InvalidInput as error:
            raise SubmitRejected(str(error)) from error
