"""Child processes of the daemon. Their start is repeated during a shortage of processes, memory or descriptors."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

from trial_runner.wire.backoff import Backoff
from trial_runner.wire.shortage import OF_UVLOOP, PATIENCE_S, WAITS_S, is_shortage


async def start(*command: str, patience_s: float = PATIENCE_S, **options: Any) -> asyncio.subprocess.Process:
    """`asyncio.create_subprocess_exec`, repeated for up to `patience_s` seconds while a shortage prevents the start.

    Raises OSError."""
    backoff, loop = Backoff(WAITS_S), asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while True:
        try:
            return await asyncio.create_subprocess_exec(*command, **options)
        except OSError as error:
            wait_s = backoff.next_wait()
            if not is_shortage(error) or loop.time() + wait_s > deadline:
                if error.errno == OF_UVLOOP:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from error
                raise
        await asyncio.sleep(wait_s)
