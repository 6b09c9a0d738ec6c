"""A child process whose output is read with limits of size and time."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from nni_manager.platform_kit import child_process

#: Seconds for one command: git reads every file of a large tree once.
PATIENCE_S = 10.0
_CHUNK = 65536
_END_S = 5.0


class NoAnswer(Exception):
    """The command did not answer; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Output:
    data: bytes
    #: Whether there was more than was asked for.
    is_cut: bool


async def read(
    command: Sequence[str], *, directory: str, environment: Mapping[str, str], most: int, patience_s: float = PATIENCE_S
) -> Output:
    """The beginning of its standard output.

    Raises NoAnswer if the command fails to start, is too slow, or exits with an error.
    """
    process = await _started(command, directory, environment)
    try:
        async with asyncio.timeout(patience_s):
            assert process.stdout is not None
            data = await _part(process.stdout, most + 1)
            if len(data) > most:
                return Output(data[:most], True)
            if await process.wait():
                raise NoAnswer(f"{os.path.basename(command[0])} ended with exit code {process.returncode}")
            return Output(data, False)
    except TimeoutError:
        raise NoAnswer(f"{os.path.basename(command[0])} took longer than {patience_s:g} s") from None
    finally:
        await _end(process)


async def _started(
    command: Sequence[str], directory: str, environment: Mapping[str, str]
) -> asyncio.subprocess.Process:
    try:
        return await child_process.start(
            *_modest(environment),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=directory,
            env=dict(environment),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise NoAnswer(f"{os.path.basename(command[0])} cannot be started ({reason})") from None


def _modest(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The prefix of a command that lowers its priority, because the first trial starts at the same time."""
    program = shutil.which("nice", path=environment.get("PATH", os.defpath))
    return (program, "-n", "15") if program else ()


async def _part(stream: asyncio.StreamReader, most: int) -> bytes:
    found = bytearray()
    while len(found) < most and (chunk := await stream.read(min(_CHUNK, most - len(found)))):
        found += chunk
    return bytes(found)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End it with all its child processes, and read its output to the end.

    Before Python 3.13, asyncio reports the end of a process only after that of its pipes, which a full stream never
    reads.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    assert process.stdout is not None
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_S):  # a process that left its group may keep the pipe open
            while await process.stdout.read(_CHUNK):
                pass
            await process.wait()
