"""`asyncio.create_subprocess_exec` for what the server forks.

asyncio waits for children only, and uvloop, which daemons have, starts programs by itself.
"""

from __future__ import annotations

import asyncio
import os
from asyncio import base_subprocess, subprocess
from typing import IO, Any

from tests.fork_server import popen

#: What a stream buffers, as asyncio's default.
_LIMIT = 1 << 16

create_truly = asyncio.create_subprocess_exec


async def create_subprocess_exec(program: Any, *args: Any, limit: int = _LIMIT, **options: Any) -> subprocess.Process:
    """Forked where that can be; elsewhere asyncio's."""
    environment = options.get("env")
    if popen.forked_command([program, *args], os.environ if environment is None else environment) is None:
        return await create_truly(program, *args, limit=limit, **options)
    loop = asyncio.get_running_loop()
    protocol = subprocess.SubprocessStreamProtocol(limit=limit, loop=loop)
    standard = {name: options.pop(name, None) for name in ("stdin", "stdout", "stderr")}
    waiter = loop.create_future()
    transport = _Fork(loop, protocol, [program, *args], shell=False, bufsize=0, waiter=waiter, **standard, **options)
    await waiter
    return subprocess.Process(transport, protocol, loop)


class _Fork(base_subprocess.BaseSubprocessTransport):
    _loop: asyncio.AbstractEventLoop

    def _start(self, args: Any, **options: Any) -> None:
        self._proc = process = popen.Popen(args, **options)
        if type(self._loop).__module__.startswith("uvloop"):
            for name in ("stdin", "stdout", "stderr"):
                if (file := getattr(process, name)) is not None:
                    setattr(process, name, _Pipe(file))
        self._end = process.end_teller()
        self._loop.add_reader(self._end, self._ended)

    def _ended(self) -> None:
        self._loop.remove_reader(self._end)
        self._end.close()
        self._process_exited(self._proc.wait())  # type: ignore[attr-defined]


class _Pipe:
    """uvloop closes the descriptor, and then the file, when the descriptor may be another one's."""

    def __init__(self, file: IO[bytes]) -> None:
        self._number = os.dup(file.fileno())
        file.close()

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        """It is closed."""
