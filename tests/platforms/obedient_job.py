"""A job that does what it is told, for worlds with jobs that are processes of this machine."""

from __future__ import annotations

import abc
import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.platform_kit.testing import Recorder, World
from trial_runner import protocol

#: Seconds.
PATIENCE_S = 20.0
#: A script for /bin/sh. Does what comes through the pipe `orders`, and says so in the pipe `answers`, both in its
#: output folder. Ends when no process holds `orders` open.
SCRIPT = """
echo started >> "$NNI_OUTPUT_DIR/starts"
exec 3< "$NNI_OUTPUT_DIR/orders" 4> "$NNI_OUTPUT_DIR/answers"
while read -r order text <&3; do
    case $order in
        exit) [ "$text" = 0 ] || echo "it broke" >&2; exit "$text" ;;
        print) echo "$text" ;;
        report) echo "$text" >> "$NNI_OUTBOX" ;;
        environment) env -0 > "$NNI_OUTPUT_DIR/shown" ;;
        show) cat "$text" > "$NNI_OUTPUT_DIR/shown" ;;
    esac
    echo done >&4
done
"""


class Pipes:
    """Both pipes of an obedient job. Open for reading and writing, so that neither side waits for the other."""

    def __init__(self, directory: Path) -> None:
        """`directory`: the job's output folder, which is made here."""
        directory.mkdir(parents=True)
        self._orders = _pipe(directory / "orders")
        self._answers = _pipe(directory / "answers")
        self._answered: asyncio.Queue[None] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(self._answers, self._read)

    def order(self, text: str) -> None:
        os.write(self._orders, f"{text}\n".encode())

    async def tell(self, text: str) -> None:
        """Returns when it is done."""
        self.order(text)
        await asyncio.wait_for(self._answered.get(), PATIENCE_S)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._answers)
        os.close(self._orders)
        os.close(self._answers)

    def _read(self) -> None:
        for _ in os.read(self._answers, 4096).splitlines():
            self._answered.put_nowait(None)


def _pipe(path: Path) -> int:
    os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


class ObedientWorld(World):
    """A world with obedient jobs, which write to folders that this machine sees."""

    #: Code directory.
    code: Path

    def __init__(self) -> None:
        super().__init__()
        #: Job → its pipes.
        self._pipes: dict[str, Pipes] = {}

    @abc.abstractmethod
    def command(self, trial_id: str, command: str, *, recorder: Recorder | None = None) -> JobSpec:
        """A job with this command; the same one every time for the same trial.

        `recorder`: of its experiment. Default: the world's.
        """

    @abc.abstractmethod
    def directory(self, job_name: str) -> Path:
        """The output folder of a job."""

    def job(self, trial_id: str) -> JobSpec:
        return self.job_of(self.recorder, trial_id)

    def job_of(self, recorder: Recorder, trial_id: str) -> JobSpec:
        spec = self.command(trial_id, "exec /bin/sh job.sh", recorder=recorder)
        self.add_pipes(spec.name, self.directory(spec.name))
        return spec

    def add_pipes(self, name: str, directory: Path) -> None:
        """Make the pipes of the obedient job in this folder, unless it has them."""
        if name not in self._pipes:
            self._pipes[name] = Pipes(directory)

    async def tell(self, handle: JobHandle, order: str) -> None:
        """Give the job an order, and return when it is done."""
        await self._pipes[handle.job_name].tell(order)

    async def environment(self, handle: JobHandle) -> Mapping[str, str]:
        await self.tell(handle, "environment")
        return dict(entry.split("=", 1) for entry in self._shown(handle).rstrip("\0").split("\0"))

    async def code_file(self, handle: JobHandle, name: str) -> str:
        await self.tell(handle, f"show {name}")  # relative to where it runs
        return self._shown(handle)

    async def parameter_record(self, handle: JobHandle) -> str:
        folder = (await self.environment(handle))[protocol.ENV_SYSTEM_DIR]
        return await self.code_file(handle, f"{folder}/{protocol.PARAMETER_FILE}")

    async def write_log(self, handle: JobHandle, line: str) -> None:
        await self.tell(handle, f"print {line}")

    async def report(self, handle: JobHandle, line: str) -> None:
        await self.tell(handle, f"report {line}")

    def _shown(self, handle: JobHandle) -> str:
        return (self.directory(handle.job_name) / "shown").read_text()

    def _write_code(self) -> None:
        self.code.mkdir(parents=True)
        (self.code / "job.sh").write_text(SCRIPT)
        for name, text in self.code_files.items():
            (self.code / name).write_text(text)


async def ended(pid: int) -> None:
    """Waits for the end of any process."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, gone.set)
    try:
        await asyncio.wait_for(gone.wait(), PATIENCE_S)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
