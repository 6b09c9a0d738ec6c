"""An experiment's folder on shared storage (`sharedStorage`), for a service whose jobs work there.

Structure below the mount point, as in NNI::

    FOLDER/.nni-storage.SERVICE   marker file: a machine without it has mounted other storage
    FOLDER/code-HASH.tar.gz       the packed code directory, written once
    FOLDER/trials/ATTEMPT/        `parameter.cfg`; `code`, where the trial works; `nnioutput`, its NNI_OUTPUT_DIR;
                                  `stdout` and `stderr` once it has ended
    FOLDER/trials/TRIAL-checkpoint/  the checkpoints of a trial, for all its attempts

FOLDER is ``nni/EXPERIMENT-KEY/KEY``, see `storage_folders.experiment_folder`.

The files with which keepers follow a job (its outbox, its output while it runs) stay on the job's machine: hanging
storage delays only the trials on it. Trials' files belong to their user, and are never removed.

Other users may write to the storage. `nni` is writable for all, with the sticky bit. The folders below it are private,
unless `mode` lets others pass through without listing them. An attempt's folder is writable for all, also with the
sticky bit: its trial may run as another user elsewhere.
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import logging
import secrets
import shlex
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import NniManagerError, NotFound, PlatformUnavailable
from nni_manager.domain.evidence import EXIT_OTHER_STORAGE, NOT_THERE
from nni_manager.domain.experiment import Json
from nni_manager.domain.ids import attempt_directory_of
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.contract import ConfigT, Host, Platform, PreflightFinding
from nni_manager.platform_kit.payload import checkpoint_beside
from nni_manager.shared_storage import storage_folders
from nni_manager.shared_storage.job_folders import read_stretch
from nni_manager.shared_storage.shared_files import ServiceMark, write_once
from nni_manager.shared_storage.shared_mount import LOCAL_FIELD, Mark, MountAnswer, ask_here, program
from nni_manager.shared_storage.storage_folders import claim_command, sha256_of, unpack_command
from trial_runner import protocol
from trial_runner.wire import foreign_files

log = logging.getLogger(__name__)

KINDS = frozenset({"NFS", "AzureBlob"})
OUTPUT_FOLDER = "nnioutput"
_ROOT = "nni"
#: Seconds for which the result of a mount check stays valid.
_BELIEVED_S = 10.0
_PIECE_BYTES = 1024 * 1024
#: Maximum size of each log; longer ones are truncated.
_MOST_LOG_BYTES = 64 * 1024 * 1024
_COLLECT_S = 15.0

T = TypeVar("T")
#: (name, offset, limit) → part of a file in the attempt's folder.
Read = Callable[[str, int, int], Awaitable[bytes]]


class SharedFolder:
    """An experiment's folder on shared storage, for one service.

    Methods raise PlatformUnavailable if the storage is not usable now; nothing was submitted then.
    """

    def __init__(self, host: Host, *, in_containers: bool = False) -> None:
        """`in_containers`: trials run as unknown users."""
        self._host = host
        self._in_containers = in_containers
        self._point = Path(str(self.section["localMountPoint"]))
        self._user = f"{host.connections.identity}.{host.experiment_id}.{host.service}"
        self._folder = storage_folders.experiment_folder(host.experiment_id, host.storage_key)
        #: The experiment's folder, below the mount point.
        self._name = f"{_ROOT}/{self._folder}"
        #: The experiment's folder on this machine.
        self.here = self._point / self._name
        self._mark = ServiceMark(self.here, host.service)
        self._readying = asyncio.Lock()
        self._believed_until_s = float("-inf")
        #: Marker file and code exist, as of the last check.
        self._is_put = False
        #: Name of the packed code in that folder; empty: not written yet.
        self.archive = ""
        self._sha256 = ""
        self._token = ""

    @classmethod
    def of(cls, host: Host, *, in_containers: bool = False) -> SharedFolder | None:
        """The experiment's folder on shared storage; None: the experiment has none."""
        return None if host.shared_storage() is None else cls(host, in_containers=in_containers)

    @property
    def section(self) -> Json:
        found = self._host.shared_storage()
        assert found is not None, "shared storage cannot be removed from an experiment"
        return found

    @property
    def remote_point(self) -> str:
        """The mount point of the storage for trials elsewhere, as in the config."""
        return str(self.section["remoteMountPoint"])

    # Before the first trial

    async def preflight(self) -> PreflightFinding:
        try:
            return (await ask_here(self._program_here("look"))).finding(LOCAL_FIELD)
        except PlatformUnavailable as error:
            return MountAnswer(state="failed", point=str(self._point), sentence=str(error)).finding(LOCAL_FIELD)

    @asynccontextmanager
    async def probe(self) -> AsyncIterator[Mark | None]:
        """A temporary marker file, to be checked elsewhere; None: the storage is not mounted here yet."""
        mark = None
        with suppress(PlatformUnavailable):
            if (await ask_here(self._program_here("look"))).is_ready:
                mark = Mark(file=f".nni-probe-{secrets.token_hex(4)}", text=secrets.token_hex(8))
        path = self._point / mark.file if mark is not None else None
        try:
            if path is not None and mark is not None:
                await self._in_thread(lambda: path.write_text(mark.text, encoding="ascii"))
            yield mark
        finally:
            if path is not None:
                await asyncio.to_thread(path.unlink, missing_ok=True)

    def program_elsewhere(self, action: str, mark: Mark | None = None, otherwise: str = "") -> str:
        """The program that checks the storage where trials run. `otherwise`: as in `shared_mount.program`."""
        return program(action, self.section, self.remote_point, user=self._user, mark=mark, otherwise=otherwise)

    # For trials

    async def ready(self, *, now: bool = False) -> Mark:
        """The marker file, once the storage is mounted here and has marker file and code.

        `now`: check again. Also raises SubmitRejected.
        """
        archive = await storage_folders.packed(self._host.code)
        async with self._readying:
            if now or not self._is_believed:
                await self._look()
            if not self._is_put:
                await self._in_thread(lambda: self._put_shared(archive))
                self._is_put = True
        return Mark(file=f"{self._name}/{self._mark.name}", text=self._token)

    async def place(self, spec: JobSpec) -> None:
        """Creates the attempt's folder; repeatable. Also raises SubmitRejected."""
        await self.ready()
        await self._in_thread(lambda: self._put_attempt(spec))

    def there(self, point: str) -> str:
        """The experiment's folder, if the storage is mounted at `point`."""
        return f"{point.rstrip('/')}/{self._name}"

    def command(self, spec: JobSpec, there: str, python: str) -> str:
        """The trial's shell text: it checks the marker file, unpacks the code and runs the trial.

        `python`: the command that runs a Python there.
        """
        return f"{self.prelude(spec, there, python)}{spec.command}"

    def prelude(self, spec: JobSpec, there: str, python: str) -> str:
        """The lines before the trial's own in `command`."""
        trial = f"{there}/trials/{attempt_directory_of(spec.name)}"
        code = shlex.quote(f"{trial}/{protocol.CODE_FOLDER}")
        words = shlex.quote(f"{NOT_THERE} {there} is not what the manager has at {self.here}; check what is mounted")
        failure = shlex.quote(
            f"{NOT_THERE} {self.archive} was changed, or cannot be unpacked into {trial};"
            " check permissions and free space there"
        )
        claim = claim_command(shlex.quote(python), shlex.quote(trial), OUTPUT_FOLDER, f"{NOT_THERE} ")
        unpack = unpack_command(python, f"{there}/{self.archive}", f"{trial}/{protocol.CODE_FOLDER}", self._sha256)
        return (
            f'[ "$(cat {shlex.quote(f"{there}/{self._mark.name}")} 2>/dev/null)" = {self._token} ] ||'
            f" {{ echo {words} >&2; exit {EXIT_OTHER_STORAGE}; }}\n"
            f"{claim} || {{ [ $? = 1 ] || echo {failure} >&2; exit {EXIT_OTHER_STORAGE}; }}\n"
            f"rm -rf {code} && mkdir {code} && {unpack} && cd {code} ||"
            f" {{ echo {failure} >&2; exit {EXIT_OTHER_STORAGE}; }}\n"
        )

    def environment(self, job_name: str, there: str) -> Mapping[str, str]:
        """The variables with the trial's folders on the storage."""
        trial = f"{there}/trials/{attempt_directory_of(job_name)}"
        return {
            protocol.ENV_CODE_DIR: f"{trial}/{protocol.CODE_FOLDER}",
            protocol.ENV_OUTPUT_DIR: f"{trial}/{OUTPUT_FOLDER}",
            protocol.ENV_CHECKPOINT_DIR: checkpoint_beside(trial),
        }

    def explained(self, report: Observation, field: str = LOCAL_FIELD) -> Observation:
        """The report on a trial. If it did not find the storage, it never started, and is tried again.

        The storage is then checked again.
        """
        if report.exit_code != EXIT_OTHER_STORAGE or report.state is not JobState.FAILED:
            return report
        _, mark, words = report.stderr_tail.rpartition(NOT_THERE)
        if not mark:
            return report
        self._disbelieve()
        message = f"{field}: {words.strip()}"
        return dataclasses.replace(
            report, state=JobState.PREEMPTED, exit_code=None, native_reason="STORAGE", message=message, stderr_tail=""
        )

    # Afterwards

    async def read_log(self, job_name: str, offset: int, limit: int) -> bytes:
        """Part of the SDK's own log in NNI_OUTPUT_DIR. Raises NotFound."""
        folder = self.here / "trials" / attempt_directory_of(job_name) / OUTPUT_FOLDER
        return await asyncio.to_thread(read_stretch, folder, protocol.TRIAL_LOG_FILE, offset, limit)

    async def collect(self, job_name: str, read: Read) -> None:
        """Copies a job's output to its folder; an unavailable log is skipped."""
        folder = self.here / "trials" / attempt_directory_of(job_name)
        try:
            async with asyncio.timeout(_COLLECT_S):
                async with self._readying:
                    if not self._is_believed:
                        await self._look()
                for name in (protocol.STDOUT_FILE, protocol.STDERR_FILE):
                    await self._copy(read, name, folder / name)
        except (NniManagerError, OSError) as error:  # a timeout is an OSError
            self._disbelieve()
            log.warning("the output of %s was not copied to the shared storage: %s", job_name, error)

    async def leave(self) -> None:
        """Removes the marker file, the code unless another service uses it, and the manager's own mount."""
        async with self._readying:
            self._disbelieve()
            with suppress(PlatformUnavailable):
                await self._look()
                await self._in_thread(self._mark.remove)
        if self._may_mount:
            answer = await ask_here(self._program_here("leave"))
            if answer.sentence:
                log.warning("%s: %s; %s", LOCAL_FIELD, answer.sentence, answer.fix)

    # Blocks

    def _put_shared(self, archive: Path) -> None:
        storage_folders.make_root(self._point, _ROOT)
        storage_folders.make_passage(self._point, _ROOT, f"{self._folder}/trials", self._mode)
        self.archive = f"code-{archive.name}"
        self._sha256 = sha256_of(archive)
        with self._mark.put() as token:
            write_once(self.here / self.archive, lambda draft: shutil.copyfile(archive, draft), self._sha256)
        self._token = token

    def _put_attempt(self, spec: JobSpec) -> None:
        name = f"{self._name}/trials/{attempt_directory_of(spec.name)}"
        storage_folders.make_open(self._point, name)
        storage_folders.make_open(self._point, checkpoint_beside(name))
        folder = self._point / name
        record = spec.parameter_record
        write_once(folder / protocol.PARAMETER_FILE, lambda draft: draft.write_text(record, encoding="utf-8"))

    # Helpers

    @property
    def _is_believed(self) -> bool:
        return asyncio.get_running_loop().time() < self._believed_until_s

    def _disbelieve(self) -> None:
        self._believed_until_s = float("-inf")

    async def _look(self) -> None:
        """Checks in a separate process whether the storage is mounted, before a thread accesses it and may hang."""
        self._is_put = False
        (await ask_here(self._program_here("use"))).require(LOCAL_FIELD)
        self._believed_until_s = asyncio.get_running_loop().time() + _BELIEVED_S

    @property
    def _mode(self) -> int:
        """The mode of that folder; configs of an earlier version have none."""
        asked = int(str(self.section.get("mode", "0700")), 8)
        return asked | storage_folders.PASSAGE if self._in_containers else asked

    @property
    def _may_mount(self) -> bool:
        return self.section["localMounted"] == "nnimount"

    def _program_here(self, action: str) -> str:
        return program(action, self.section, str(self._point), user=self._user, may_mount=self._may_mount)

    async def _copy(self, read: Read, name: str, target: Path) -> None:
        pieces, size = [], 0
        with suppress(NotFound):
            while size < _MOST_LOG_BYTES and (piece := await read(name, size, _PIECE_BYTES)):
                pieces.append(piece)
                size += len(piece)
        if pieces:
            whole = b"".join(pieces)
            await self._in_thread(lambda: foreign_files.write_whole(str(target.parent), target.name, whole, 0o644))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await storage_folders.in_thread(work, f"{LOCAL_FIELD}: the storage", self._point)


class OnSharedStorage(Platform[ConfigT]):
    """The base of adapters whose trials may work on the experiment's shared storage."""

    #: Trials run as unknown users.
    in_containers: ClassVar[bool] = False

    def __init__(self, config: ConfigT, host: Host) -> None:
        super().__init__(config, host)
        self._shared = SharedFolder.of(host, in_containers=self.in_containers)

    @abc.abstractmethod
    async def _read(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        """Reads a file of a job outside the shared storage; as `read_file`."""

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        if self._shared is not None and name == protocol.TRIAL_LOG_FILE:
            return await self._shared.read_log(handle.job_name, offset, limit)
        return await self._read(handle, name, offset, limit)

    async def _collect(self, handles: Sequence[JobHandle]) -> None:
        if (shared := self._shared) is not None:
            reading = [(handle.job_name, partial(self._read, handle)) for handle in handles]
            await asyncio.gather(*(shared.collect(name, read) for name, read in reading))

    async def close(self) -> None:
        await super().close()
        if self._shared is not None:
            await self._shared.leave()
