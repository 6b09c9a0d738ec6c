"""The daemon's queries about trials: one child process for all, and a cache of answers.

The process runs `worker`. Starting, querying and ending it never blocks the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nni_manager.analysis.query import Query
from nni_manager.analysis.questions import QUESTIONS, WHOLE
from nni_manager.domain.environment import without_settings
from nni_manager.domain.errors import AnalysisUnavailable, InvalidInput, NotFound, StoreError
from nni_manager.platform_kit import child_process

log = logging.getLogger(__name__)

#: Time limit for an answer, in seconds.
_TIMEOUT_S = 30.0
#: Seconds without a query after which the process is ended.
_IDLE_S = 300.0
#: Maximum number of cached answers, and of their characters.
_MOST_ANSWERS = 128
_MOST_CHARACTERS = 8_000_000
#: Queries for the first screen of a page: its first charts, then the slowest ones.
_FIRST_ASKED = ("results", "curves", "columns")

#: Experiment id → path of its database and revision; see `ExperimentCommands.stored_state`.
Located = Callable[[str], Awaitable[tuple[Path, str]]]
_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as JSON text."""

    #: Of the experiment: answers of one revision are equal.
    revision: str
    text: str
    #: False: part of it is still being computed; a later answer of the same revision may have it.
    is_settled: bool = True


class Analysis:
    """Answers queries about trials; used from one event loop. `close` ends its process."""

    def __init__(self, located: Located, *, timeout_s: float = _TIMEOUT_S, idle_s: float = _IDLE_S) -> None:
        self._located = located
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._worker: WorkerProcess | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        #: Queries in progress: clients with the same query share the answer.
        self._asked: dict[_Key, asyncio.Task[Answer]] = {}
        self._preparing: asyncio.Task[None] | None = None
        self._answers: OrderedDict[_Key, Answer] = OrderedDict()

    @property
    def pid(self) -> int | None:
        """The id of the process, or None."""
        return self._worker.pid if self._worker is not None and not self._worker.has_ended else None

    async def revision(self, id: str) -> str:
        """The revision of an experiment, without a query to the process. Raises NotFound, AnalysisUnavailable."""
        return (await self._state(id))[1]

    async def ask(self, id: str, question: str, query: Query) -> Answer:
        """The answer to a query of `QUESTIONS`. Raises NotFound, InvalidInput, AnalysisUnavailable."""
        if question not in QUESTIONS:
            raise NotFound(f"unknown query {question!r}; use {', '.join(QUESTIONS)}")
        path, revision = await self._state(id)
        key = (id, question, "" if question in WHOLE else query.string(), revision)
        if (kept := self._answers.get(key)) is not None:
            self._answers.move_to_end(key)
            return kept
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(self._ask(key, path), name=f"analysis-{question}")
            task.add_done_callback(lambda done: self._finish(key, done))
        return await asyncio.shield(task)

    def prepare(self, id: str) -> None:
        """Start the process and load an experiment if none runs, because a page is requested that will send queries.

        Does not wait; the first query reports an error.
        """
        if self.pid is not None or self._preparing is not None or self._is_closed:
            return
        self._preparing = asyncio.create_task(self._prepare(id), name="analysis-prepare")

    async def close(self) -> None:
        """Ends the process. Idempotent."""
        self._is_closed = True
        if self._idle is not None:
            self._idle.cancel()
        async with self._starting:
            if self._worker is not None:
                await self._worker.close()
        preparing = () if self._preparing is None else (self._preparing,)
        if waiting := {*self._asked.values(), *self._ending, *preparing}:
            await asyncio.wait(waiting)

    async def _prepare(self, id: str) -> None:
        try:
            await asyncio.gather(*(self.ask(id, question, Query()) for question in _FIRST_ASKED))
        except (InvalidInput, NotFound, AnalysisUnavailable) as error:
            log.debug("no process was prepared: %s", error)
        finally:
            self._preparing = None

    async def _state(self, id: str) -> tuple[Path, str]:
        try:
            return await self._located(id)
        except StoreError as error:
            raise AnalysisUnavailable(str(error)) from error

    async def _ask(self, key: _Key, path: Path) -> Answer:
        _, question, query, revision = key
        request = {"question": question, "query": query, "path": str(path), "revision": revision}
        worker = await self._running()
        reply = await worker.ask(request, timeout_s=self._timeout_s)
        self._end_later()
        return Answer(revision, reply.text, reply.is_settled)

    def _finish(self, key: _Key, task: asyncio.Task[Answer]) -> None:
        self._asked.pop(key, None)
        if task.cancelled() or task.exception() is not None or not task.result().is_settled:
            return
        self._answers[key] = task.result()
        while len(self._answers) > _MOST_ANSWERS or self._characters > _MOST_CHARACTERS:
            self._answers.popitem(last=False)

    @property
    def _characters(self) -> int:
        return sum(len(answer.text) for answer in self._answers.values())

    async def _running(self) -> WorkerProcess:
        """The process, which is started if necessary. Raises AnalysisUnavailable."""
        async with self._starting:
            if self._is_closed:
                raise AnalysisUnavailable("the daemon ends")
            if self._worker is None or self._worker.has_ended:
                self._worker = await WorkerProcess.start()
                log.debug("process %d answers about trials", self._worker.pid, extra={"action": "analysis"})
            return self._worker

    def _end_later(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)

    def _end_idle(self) -> None:
        if self._asked:
            return self._end_later()
        worker, self._worker = self._worker, None
        self._answers.clear()
        if worker is not None:
            task = asyncio.ensure_future(worker.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


log = logging.getLogger(__name__)

#: Disables threads of numpy's linear algebra, which is not used, to save memory and processors.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
_AGAIN = "try again: the next query restarts the process"


class Reply(NamedTuple):
    """JSON text, and whether it is final for this revision of the experiment."""

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
        """Start a process. Raises AnalysisUnavailable."""
        # -P: do not import modules from the current folder
        command = [sys.executable, "-P", "-m", "nni_manager.analysis.worker"]
        try:
            process = await child_process.start(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd="/",
                env={**without_settings(os.environ), **_ONE_THREAD},
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
        """The reply to a request of `worker`. A timeout ends the process.

        Raises InvalidInput, NotFound, AnalysisUnavailable.
        """
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
        with contextlib.suppress(ConnectionError, RuntimeError):  # uvloop raises RuntimeError
            self._process.stdin.write(json.dumps(request).encode() + b"\n")

    def _kill(self) -> None:
        self._is_killed = True
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _read(self) -> None:
        """Read answers until the process ends; then refuse every waiting query."""
        assert self._process.stdout is not None
        try:
            while line := await self._process.stdout.readline():
                header = json.loads(line)
                self._take(header, await self._process.stdout.readexactly(header["bytes"]))
        except (ValueError, KeyError, asyncio.IncompleteReadError, ConnectionError) as error:
            log.debug("reading from the process that answers about trials failed: %r", error)
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
            return  # its client disconnected
        if "refused" in header:
            future.set_exception(_refusal(header["refused"], text.decode()))
        else:
            future.set_result(Reply(text.decode(), header["settled"]))


def _refusal(kind: str, text: str) -> Exception:
    if kind == "fault":
        log.error("a query about trials failed:\n%s", text)
        return AnalysisUnavailable("internal error of the manager, not of your request; see its log for details")
    kinds = {error.__name__: error for error in (InvalidInput, NotFound)}
    return kinds.get(kind, InvalidInput)(text) if kind in (*kinds, "BadDimension") else AnalysisUnavailable(text)
