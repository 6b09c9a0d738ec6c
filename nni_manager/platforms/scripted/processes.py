"""Jobs that are processes of this machine, kept by its keeper, so that they outlive the daemon.

The keeper knows their exit codes and nothing of their results: the runner's folder is below the one that it follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from nni_manager.domain.job import JobReport
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.keeper.jobs import KeeperJobs
from nni_manager.platform_kit.machines.ledger import Reservation
from nni_manager.platforms.scripted.jobs import Jobs


class Processes(KeeperJobs):
    """The jobs of one service as processes. `jobs`: those that the cluster knows. Methods raise PlatformUnavailable."""

    def __init__(self, host: Host, jobs: Jobs) -> None:
        async def known(names: Collection[str]) -> Collection[str]:
            return await jobs.find(names)

        super().__init__(host, has_results=False, known=known)

    async def start(
        self, job_name: str, folder: Path, command: str, environment: Mapping[str, str], grace_s: float,
        reservation: Reservation | None,
    ) -> None:  # fmt: skip
        """Starts a process in `folder`, which is made. Raises SubmitRejected, too."""
        await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        job = {
            "command": command, "environment": dict(environment), "directory": str(folder),
            "attempt_directory": str(folder), "files": {}, "grace_s": grace_s,
        }  # fmt: skip
        await self.submit(job_name, job, reservation)

    async def find(self, names: Sequence[str]) -> dict[str, JobReport]:
        """The reports on those of these jobs of which the keeper has word."""
        return {name: report for name, report in (await self.reports(names)).items() if report is not self.unheard_of}
