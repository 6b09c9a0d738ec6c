"""A container's processes: started, watched, signalled, and found again by a restarted server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

#: The first process of a container. It writes the exit code to a file, for the case that the server is away.
_FIRST = """
env --default-signal=INT,QUIT "$@" </dev/null &
child=$!
trap 'kill -TERM $child 2>/dev/null' TERM
while :; do
    wait $child
    code=$?
    kill -0 $child 2>/dev/null || break
done
echo $code >"$CONTAINER_FOLDER/exit.new" && mv "$CONTAINER_FOLDER/exit.new" "$CONTAINER_FOLDER/exit"
"""
_MARK = "CONTAINER_FOLDER"
KILLED = 137


class Running(Protocol):
    """Interface of a started container."""

    id: str

    async def wait(self) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def reap(self) -> None: ...


@dataclass(frozen=True)
class Command:
    """A command to start."""

    argv: list[str]
    environment: dict[str, str]
    working_folder: Path
    log: Path


class Process:
    """A container as a tree of processes; `folder`: of this run."""

    def __init__(self, folder: Path, pid: int, started: subprocess.Popen[bytes] | None) -> None:
        self.id = f"process://{pid}"
        self._folder, self._pid, self._popen = folder, pid, started

    @classmethod
    def start(cls, folder: Path, command: Command) -> Process:
        folder.mkdir(parents=True, exist_ok=True)
        environment = {**command.environment, _MARK: str(folder)}
        with command.log.open("ab") as log:
            started = subprocess.Popen(
                ["/bin/sh", "-c", _FIRST, "sh", *command.argv],
                env=environment,
                cwd=command.working_folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        noted = {"pid": started.pid, "start": _start_time(started.pid)}
        (folder / "process.json").write_text(json.dumps(noted))
        return cls(folder, started.pid, started)

    @classmethod
    def found(cls, folder: Path) -> Process | None:
        """A container that an earlier server started here, running or ended."""
        with suppress(OSError, ValueError):
            noted = json.loads((folder / "process.json").read_text())
            return cls(folder, noted["pid"], None)
        return None

    async def wait(self) -> int:
        if self._lives():
            await self._ended()
        if self._popen is not None:
            self._popen.wait()
        self.kill()  # processes that the first one leaves end with the container
        with suppress(OSError, ValueError):
            return int((self._folder / "exit").read_text())
        return KILLED

    def terminate(self) -> None:
        if self._lives():
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill all its processes, in any session and group."""
        if self._lives():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        for pid in _marked(str(self._folder)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def reap(self) -> None:
        """Reap a killed process that no task awaits."""
        if self._popen is not None:
            self._popen.wait()

    def _lives(self) -> bool:
        if self._popen is not None:
            return self._popen.poll() is None
        with suppress(OSError, ValueError):
            noted = json.loads((self._folder / "process.json").read_text())
            return _start_time(self._pid) == noted["start"] and noted["start"] is not None
        return False

    async def _ended(self) -> None:
        try:
            handle = os.pidfd_open(self._pid)
        except ProcessLookupError:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)


class Pretended:
    """A simulated container without a process, for large numbers of pods."""

    def __init__(self, number: int, seconds: float, exit_code: int) -> None:
        self.id = f"pretended://{number}"
        self._seconds, self._exit_code = seconds, exit_code
        self._told = asyncio.Event()

    async def wait(self) -> int:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._told.wait(), self._seconds)
        return self._exit_code

    def terminate(self) -> None:
        self._exit_code = 143
        self._told.set()

    def kill(self) -> None:
        if not self._told.is_set():
            self._exit_code = KILLED
        self._told.set()

    def reap(self) -> None:
        pass


def _start_time(pid: int) -> str | None:
    """Start time, which identifies a process together with its number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def _marked(folder: str) -> list[int]:
    mark, found = f"{_MARK}={folder}\0".encode(), []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                if mark in Path(entry.path, "environ").read_bytes():
                    found.append(int(entry.name))
    return found
