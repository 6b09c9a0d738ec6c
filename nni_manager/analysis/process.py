"""The child process of `worker`, as the daemon sees it: started, asked and ended without blocking the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from typing import Any, NamedTuple

from nni_manager.domain.errors import AnalysisUnavailable, InvalidInput, NotFound

log = logging.getLogger(__name__)

#: Threads of numpy's linear algebra, which is not used, would take memory and processors.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
_AGAIN = "ask again: the next question starts the process anew"


class Reply(NamedTuple):
    """JSON text, and whether it stays the same while the experiment does."""

    text: str
    is_settled: bool


class WorkerProcess:
    """A running child process; unusable once `has_ended`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._asked: dict[int, asyncio.Future[Reply]] = {}
        self._number = 0
        self._is_killed = False
        self._reading = asyncio.create_task(self._read(), name="analysis-answers")

    @classmethod
    async def start(cls) -> WorkerProcess:
        """Raises AnalysisUnavailable when it cannot be started."""
        # -P: a folder that it happens to be started in has no modules for it
        command = [sys.executable, "-P", "-m", "nni_manager.analysis.worker"]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd="/",
                env={**os.environ, **_ONE_THREAD},
                start_new_session=True,
            )
        except OSError as error:
            raise AnalysisUnavailable(f"the process that answers about trials cannot be started: {error}") from error
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._is_killed or self._reading.done()

    async def ask(self, request: dict[str, Any], *, timeout_s: float) -> Reply:
        """The reply to a request of `worker`. Raises InvalidInput, NotFound, AnalysisUnavailable; after a timeout the
        process is ended."""
        self._number += 1
        number = self._number
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            async with asyncio.timeout(timeout_s):
                self._send({**request, "id": number})
                return await future
        except TimeoutError:
            self._kill()
            sentence = f"the answer took longer than {timeout_s:g} s; narrow the filter, or {_AGAIN}"
            raise AnalysisUnavailable(sentence) from None
        finally:
            self._asked.pop(number, None)

    async def close(self) -> None:
        """Ends the process. Idempotent."""
        self._kill()
        await asyncio.wait({self._reading})
        await self._process.wait()

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        if self.has_ended:
            raise AnalysisUnavailable(f"the process that answers about trials has ended; {_AGAIN}")
        with contextlib.suppress(ConnectionError, RuntimeError):  # the reader sees its end; uvloop raises RuntimeError
            self._process.stdin.write(json.dumps(request).encode() + b"\n")

    def _kill(self) -> None:
        self._is_killed = True
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _read(self) -> None:
        """Reads answers until the process ends; then every question that waits is refused."""
        assert self._process.stdout is not None
        try:
            while line := await self._process.stdout.readline():
                header = json.loads(line)
                self._take(header, await self._process.stdout.readexactly(header["bytes"]))
        except (ValueError, KeyError, asyncio.IncompleteReadError, ConnectionError) as error:
            log.debug("the process that answers about trials broke off: %r", error)
        finally:
            self._kill()
        code = await self._process.wait()
        ending = f"signal {-code}" if code < 0 else f"exit code {code}"
        for future in self._asked.values():
            if not future.done():
                sentence = f"the process that answers about trials ended ({ending}); {_AGAIN}"
                future.set_exception(AnalysisUnavailable(sentence))

    def _take(self, header: dict[str, Any], text: bytes) -> None:
        future = self._asked.get(header["id"])
        if future is None or future.done():
            return  # its client went away
        if "refused" in header:
            future.set_exception(_refusal(header["refused"], text.decode()))
        else:
            future.set_result(Reply(text.decode(), header["settled"]))


def _refusal(kind: str, text: str) -> Exception:
    if kind == "fault":
        log.error("a question about trials could not be answered:\n%s", text)
        return AnalysisUnavailable("a fault in the manager, nothing of yours; its log has the details")
    kinds = {error.__name__: error for error in (InvalidInput, NotFound)}
    return kinds.get(kind, InvalidInput)(text) if kind in (*kinds, "BadDimension") else AnalysisUnavailable(text)
