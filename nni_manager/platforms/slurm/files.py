"""The folders of an experiment's jobs: on storage that is mounted here, or copied over the login."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from nni_manager.domain.errors import PlatformError
from nni_manager.domain.ids import attempt_directory_of
from nni_manager.domain.job import JobSpec
from nni_manager.machines.mirrored_folders import MirroredFolders
from nni_manager.machines.shell import Shell
from nni_manager.platform_kit.contract import Host
from nni_manager.platforms.slurm.config import SlurmConfig
from nni_manager.platforms.slurm.script import ERROR_FILE
from nni_manager.shared_storage.job_folders import JobFolders
from nni_manager.shared_storage.mounted_storage import START_FILE, AttemptFolder, MountedStorage
from nni_manager.shared_storage.shared_files import SHARED_PATTERNS
from trial_runner import protocol
from trial_runner.wire import foreign_files

#: Only the manager's user runs jobs.
_MODE = "0700"
#: Seconds between two readings over the login.
_READ_EVERY_S = 5.0
#: Seconds for the files of an ended job to appear: on mounted storage, and over the login.
_MOUNTED_S, _READ_S = 3.0, 12.0
_TAIL_BYTES = 2048


class JobFiles:
    """Entered and exited with the adapter."""

    def __init__(self, config: SlurmConfig, host: Host) -> None:
        self._config = config
        self._host = host
        #: Whether the manager's machine mounts the jobs' storage.
        self.is_mounted = config.login is None or config.local_folder is not None
        self.folders = JobFolders(host, patience_s=_MOUNTED_S if self.is_mounted else _READ_S)
        self._mirror: MirroredFolders | None = None

    def storage(self, home: str) -> MountedStorage:
        """The storage. `home`: of the login."""
        config = self._config
        own = self._host.folder / self._host.service
        if not self.is_mounted:
            here, there = own, config.folder or f"{home}/.nni-manager"
        elif config.folder is not None:
            here, there = Path(config.local_folder or config.folder), config.folder
        else:
            here, there = own, str(own)
        if here == own:
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
        return MountedStorage.of(self._host, here, there, _MODE)

    def enter(self, shell: Shell, home: str) -> None:
        storage = self.storage(home)
        self.folders.enter(storage)
        if not self.is_mounted:
            self._mirror = self._mirror_of(storage, shell)
            self._mirror.enter()

    async def leave(self) -> None:
        """Idempotent."""
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            await mirror.leave()
        await self.folders.leave()

    async def put(self, spec: JobSpec, variables: Mapping[str, str]) -> tuple[AttemptFolder, str]:
        """Puts everything that a job needs on the storage; returns its folder and its start command.

        Raises PlatformUnavailable, BadCredentials and SubmitRejected.
        """
        storage = self.folders.storage
        folder = await storage.put(spec, variables, self._host.code)
        if self._mirror is not None:
            name = folder.here.name
            once = [path.name for pattern in SHARED_PATTERNS for path in sorted(storage.here.glob(pattern))]
            await self._mirror.send([f"{name}/{protocol.PARAMETER_FILE}", f"{name}/{START_FILE}"], once)
        return folder, storage.start_command(folder)

    def follow(self, job_name: str) -> None:
        if self._mirror is not None:
            self._mirror.follow(job_name, attempt_directory_of(job_name))

    def hurry(self) -> None:
        """Reads over the login now, as a job has ended."""
        if self._mirror is not None:
            self._mirror.hurry()

    def forget(self, job_name: str) -> None:
        self.folders.forget(job_name)
        if self._mirror is not None:
            self._mirror.forget(job_name)

    def complaint(self, job_name: str) -> str:
        """The end of what Slurm and the script printed on stderr; empty: nothing. Blocks."""
        try:
            data = foreign_files.read(str(self.folders.here(job_name)), ERROR_FILE, -_TAIL_BYTES, _TAIL_BYTES)
        except OSError:
            return ""
        return data.decode(errors="replace")

    async def refresh(self) -> None:
        """Reads over the login what jobs have written since, if it answers."""
        if self._mirror is not None:
            with suppress(PlatformError, OSError):
                await self._mirror.read()

    async def remove_left(self, shell: Shell, home: str) -> None:
        """Removes what all jobs used, for an adapter that was not entered."""
        await self._remove_shared(self.storage(home), shell)

    async def close(self, shell: Shell) -> None:
        """Removes what all jobs use; files of trials belong to their user."""
        await self._remove_shared(self.folders.storage, shell)

    async def _remove_shared(self, storage: MountedStorage, shell: Shell) -> None:
        if not self.is_mounted:
            await (self._mirror or self._mirror_of(storage, shell)).remove(SHARED_PATTERNS)
        await storage.remove_shared()

    def _mirror_of(self, storage: MountedStorage, shell: Shell) -> MirroredFolders:
        login = self._config.login
        return MirroredFolders(
            shell,
            storage.here,
            storage.there,
            every_s=_READ_EVERY_S,
            on_news=self.folders.pull.notice,
            python=f"{login.python_path}/python3" if login is not None and login.python_path else "",
        )
