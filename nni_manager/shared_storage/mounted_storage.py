"""Storage that this machine and the jobs' containers both mount, each at its own path.

Structure below both mount points, per experiment::

    FOLDER/.nni-storage.SERVICE  marker file: a container without it has mounted other storage
    FOLDER/runner-HASH.pyz       the trial runner
    FOLDER/code-HASH.tar.gz      the packed code directory; both written once
    FOLDER/TRIAL-checkpoint/     the checkpoints of a trial, for all its attempts
    FOLDER/ATTEMPT/              the runner's folder: `parameter.cfg`, `run.sh`, code, results, logs

FOLDER is ``EXPERIMENT-KEY/KEY``, see `storage_folders.experiment_folder`.

`start_command` is the container's command: it checks the marker file, and runs `run.sh`. It contains none of the user's
text, which is in `run.sh`, so no quoting of a platform changes that. No secret is on the storage: the adapter passes
the runner's token in the container's environment.

Other users may write to the storage. The experiment's folder is ours, and others can pass through it but not list it,
unless its mode differs. An attempt's folder is writable for the container, whose user is unknown, with the sticky bit.

Files of trials stay here for their user; `shared_storage.pull` reads them.
"""

from __future__ import annotations

import asyncio
import hashlib
import shlex
import shutil
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from nni_manager.domain.attempt import Observation
from nni_manager.domain.evidence import EXIT_OTHER_STORAGE
from nni_manager.domain.ids import checkpoint_directory_of
from nni_manager.domain.job import JobSpec, JobState
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.payload import checkpoint_beside, runner_archive
from nni_manager.platform_kit.section_model import folder_mode
from nni_manager.shared_storage import storage_folders
from nni_manager.shared_storage.shared_files import ServiceMark, write_once, write_whole
from trial_runner import protocol
from trial_runner.wire import removal

START_FILE = "run.sh"
#: Seconds that a container waits for the marker file: a new file may not be visible there yet.
_PATIENCE_S = 15

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFolder:
    """An attempt's folder: its paths on this machine and in the container."""

    here: Path
    there: str
    #: SHA-256 of its `run.sh`, in hex, which its container checks; empty: not written now.
    script_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """A file that all attempts use: its name in the experiment's folder, and its SHA-256 in hex."""

    name: str
    sha256: str


class MountedStorage:
    """The mounted storage of one experiment and service. `here`: its mount point on this machine; `there`: in
    containers, absolute; `folder`: the experiment's below both; `mode`: of that; `service`: its name.

    Methods raise PlatformUnavailable if the storage is not usable now; nothing was submitted then.
    """

    def __init__(self, here: Path, there: str, folder: str, mode: int, service: str) -> None:
        self.here = here / folder
        self.there = f"{there.rstrip('/')}/{folder}"
        self._mount_point, self._there_point = here, there
        self._folder, self._mode = folder, mode
        self._mark = ServiceMark(self.here, service)
        #: Content of the marker file; empty: not written yet.
        self._token = ""
        self._runner = _Shared(name="", sha256="")
        self._code: dict[Path, _Shared] = {}
        self._putting = asyncio.Lock()

    @classmethod
    def of(cls, host: Host, here: Path, there: str, mode: object) -> Self:
        """The storage of a service's jobs, in the experiment's own folder. `mode`: from the section."""
        folder = storage_folders.experiment_folder(host.experiment_id, host.storage_key)
        return cls(here, there, folder, folder_mode(mode), host.service)

    def attempt(self, attempt_directory: str) -> AttemptFolder:
        """The folder of an attempt; `attempt_directory`: its name, or any path that ends with it."""
        name = Path(attempt_directory).name
        return AttemptFolder(here=self.here / name, there=f"{self.there}/{name}")

    def code_archive(self, code: Path) -> str:
        """The path of the packed code in containers, after `put`; `code`: its path here."""
        return f"{self.there}/code-{code.name}"

    async def put(
        self, spec: JobSpec, variables: Mapping[str, str], code: Callable[[], Awaitable[Path]], before: str = ""
    ) -> AttemptFolder:
        """Writes everything that the attempt's container needs to the storage; repeatable.

        `variables`: of its runner, no secrets. `code`: `Host.code`. `before`: lines of shell text that the container
        runs before the runner. Also raises SubmitRejected.
        """
        archive = await storage_folders.packed(code)
        async with self._putting:
            await self._in_thread(lambda: self._put_shared(archive))
        return await self._in_thread(lambda: self._put_attempt(spec, variables, self._code[archive], before))

    def start_command(self, folder: AttemptFolder, replica: str = "") -> str:
        """The command of a container, one line of shell text, without quotes or templates that a platform might change.
        `folder`: the result of `put`. The container runs a copy of `run.sh` after checking its SHA-256.

        `replica`: empty for the reporting process; otherwise shell text that evaluates to the name of another one.
        """
        # mount points and ids need no quotes; anything else gets them
        mark, script = shlex.quote(f"{self.there}/{self._mark.name}"), shlex.quote(f"{folder.there}/{START_FILE}")
        wait = f"n=0; until [ -e {mark} ] || [ $n -ge {_PATIENCE_S} ]; do n=$((n+1)); sleep 1; done"
        look = f"[ x$(cat {mark}) = x{self._token} ] || exit {EXIT_OTHER_STORAGE}"
        copy = f"s=$(mktemp) || exit {protocol.EXIT_CANNOT_START}; cp {script} $s"
        check = f"[ x$(sha256sum $s | cut -c 1-64) = x{folder.script_sha256} ] || exit {protocol.EXIT_BAD_CODE}"
        return f"{wait}; {look}; {copy}; {check}; exec sh $s {replica}".rstrip()

    def explained(self, report: Observation, fields: tuple[str, str]) -> Observation:
        """The report on a job; explains if its container sees other storage.

        `fields`: config fields of the storage's paths here and there.
        """
        if report.state is not JobState.FAILED or report.exit_code != EXIT_OTHER_STORAGE:
            return report
        message = (
            f"{fields[1]}: the container does not find the marker file at {self._there_point}, so it is not the storage"
            f" that is mounted at {self._mount_point} here; correct it, or {fields[0]}"
        )
        if not self._mode & stat.S_IXOTH:
            message += f"; or its user may not enter the folder, whose mode is {self._mode:04o}: widen that to 0711"
        return replace(report, message=message)  # the exit code is the runner's own

    async def remove(self) -> None:
        """Removes the experiment's folder and its content. Raises OSError."""
        whole = self._mount_point / self._folder.partition("/")[0]
        await asyncio.to_thread(removal.remove, str(whole))

    async def remove_shared(self) -> None:
        """Removes the files that all attempts use, until they are needed again; files that another service of the
        experiment uses stay. Trials' files belong to the user."""
        async with self._putting:
            self._code.clear()
            await self._in_thread(self._mark.remove)

    # Blocks

    def _put_shared(self, code: Path) -> None:
        if not self._mount_point.is_dir():
            raise FileNotFoundError(2, "no such folder; is it mounted?", str(self._mount_point))
        if self._is_put(code):
            return
        storage_folders.make_passage(self._mount_point, "", self._folder, self._mode)
        archive = runner_archive()
        digest = hashlib.sha256(archive).hexdigest()
        runner = _Shared(name=f"runner-{digest[:16]}.pyz", sha256=digest)
        packed = _Shared(name=f"code-{code.name}", sha256=storage_folders.sha256_of(code))
        with self._mark.put() as token:
            write_once(self.here / runner.name, lambda draft: draft.write_bytes(archive), runner.sha256)
            write_once(self.here / packed.name, lambda draft: shutil.copyfile(code, draft), packed.sha256)
        self._token, self._runner, self._code[code] = token, runner, packed

    def _is_put(self, code: Path) -> bool:
        if (packed := self._code.get(code)) is None:
            return False
        return all((self.here / name).exists() for name in (self._mark.name, self._runner.name, packed.name))

    def _put_attempt(self, spec: JobSpec, variables: Mapping[str, str], code: _Shared, before: str) -> AttemptFolder:
        folder = self.attempt(spec.attempt_directory)
        for name in (folder.here.name, checkpoint_directory_of(folder.here.name)):
            storage_folders.make_open(self._mount_point, f"{self._folder}/{name}")
        script = self._script(folder, variables, code, before)
        for name, text in ((protocol.PARAMETER_FILE, spec.parameter_record), (START_FILE, script)):
            write_whole(folder.here / name, partial(Path.write_text, data=text, encoding="utf-8"))
        return replace(folder, script_sha256=hashlib.sha256(script.encode()).hexdigest())

    def _script(self, folder: AttemptFolder, variables: Mapping[str, str], code: _Shared, before: str) -> str:
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
        values = {
            "folder": folder.there,
            "checkpoint": checkpoint_beside(folder.there),
            "record": f"{folder.there}/{protocol.PARAMETER_FILE}",
            "runner": f"{self.there}/{self._runner.name}",
            "runner_sha256": self._runner.sha256,
        }
        quoted = {name: shlex.quote(value) for name, value in values.items()}
        quoted |= {
            "claim": storage_folders.claim_command("python3", '"$folder"', protocol.OUTBOX_FOLDER),
            "rename": shlex.quote(storage_folders.RENAME),
            "claim_replicas": storage_folders.claim_command("python3", '"$folder"', storage_folders.REPLICAS),
        }
        program, archive = shlex.quote(storage_folders.UNPACK), shlex.quote(f"{self.there}/{code.name}")
        return exports + _SCRIPT.format(
            **quoted, program=program, archive=archive, archive_sha256=code.sha256, before=before
        )

    # Errors

    async def _in_thread(self, work: Callable[[], T]) -> T:
        storage = f"the storage mounted at {self._mount_point}"
        return await storage_folders.in_thread(work, storage, self._mount_point)


def variables_of(spec: JobSpec, platform: str) -> dict[str, str]:
    """The variables of an attempt's runner, without the folders, which `run.sh` sets, and the token."""
    kept = {name: value for name, value in spec.runner_environment.items() if name != protocol.ENV_TOKEN}
    return {
        **kept,
        **spec.protocol_environment,
        protocol.ENV_PLATFORM: platform,
        protocol.ENV_COMMAND: spec.command,
        protocol.ENV_GRACE_S: f"{spec.grace_period_s:g}",
        protocol.ENV_CHANNEL: "auto" if protocol.ENV_MANAGER_URL in kept else protocol.PULL,
        protocol.ENV_CODE: "present",
        **({protocol.ENV_GPUS: ""} if spec.gpu_number == 0 else {}),
    }


#: An argument names a process that does not report, in a folder of its own. Copies in the node's temporary folder are
#: removed: this one at its start, as nodes are no containers, and the runner's by the runner.
_SCRIPT = f"""\
rm -f "$0"
folder={{folder}}
export {protocol.ENV_CHECKPOINT_DIR}={{checkpoint}}
if ! command -v python3 >/dev/null; then
    echo "This image has no python3. Use an image with Python 3.7 or newer." >&2
    exit {protocol.EXIT_USAGE}
fi
if [ -n "$1" ]; then
    {{claim_replicas}} || exit {protocol.EXIT_CANNOT_START}
    folder="$folder/{storage_folders.REPLICAS}/$1"
    mkdir -p "$folder" && cp {{record}} "$folder/{protocol.PARAMETER_FILE}" || exit {protocol.EXIT_CANNOT_START}
    export {protocol.ENV_REPORTER}=0
fi
export {protocol.ENV_SYSTEM_DIR}="$folder" {protocol.ENV_CODE_DIR}="$folder/{protocol.CODE_FOLDER}"
if [ ! -d "${protocol.ENV_CODE_DIR}" ]; then
    rm -rf "$folder/.code"
    mkdir "$folder/.code" &&
        python3 -I -W ignore -c {{program}} {{archive}} "$folder/.code" {{archive_sha256}} &&
        python3 -I -c {{rename}} "$folder/.code" "${protocol.ENV_CODE_DIR}" || exit {protocol.EXIT_BAD_CODE}
fi
# afterwards: existing entries cannot be replaced by other users
{{claim}} || exit {protocol.EXIT_CANNOT_START}
{{before}}runner="$(mktemp -d)/runner.pyz" && cp {{runner}} "$runner" || exit {protocol.EXIT_CANNOT_START}
if [ "$(sha256sum "$runner" | cut -c 1-64)" != {{runner_sha256}} ]; then
    echo {{runner}}: not the one that the manager wrote: its SHA-256 differs >&2
    exit {protocol.EXIT_CANNOT_START}
fi
export {protocol.ENV_TEMPORARY}="${{{{runner%/*}}}}"
exec python3 "$runner"
"""
