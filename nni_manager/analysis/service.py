"""Questions about trials, as the daemon asks them: one child process for all, and the last answers.

The process, of `worker`, is started, asked and ended without blocking the daemon.
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

#: Seconds for one answer.
_TIMEOUT_S = 30.0
#: Seconds without a question after which the process is ended.
_IDLE_S = 300.0
#: Most answers that are kept, and most characters of them.
_MOST_ANSWERS = 128
_MOST_CHARACTERS = 8_000_000
#: By the first screen of a page: its first charts, then what takes longest.
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
    #: False: something in it is being computed, and the next answer of the same revision may have it.
    is_settled: bool = True


class Analysis:
    """Answers questions about trials; used from one event loop. `close` ends its process."""

    def __init__(self, located: Located, *, timeout_s: float = _TIMEOUT_S, idle_s: float = _IDLE_S) -> None:
        self._located = located
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._worker: WorkerProcess | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        #: Questions that are being answered: clients that ask the same share the answer.
        self._asked: dict[_Key, asyncio.Task[Answer]] = {}
        self._preparing: asyncio.Task[None] | None = None
        self._answers: OrderedDict[_Key, Answer] = OrderedDict()

    @property
    def pid(self) -> int | None:
        """The process; None: none runs."""
        return self._worker.pid if self._worker is not None and not self._worker.has_ended else None

    async def revision(self, id: str) -> str:
        """The revision of an experiment, without asking the process. Raises NotFound, AnalysisUnavailable."""
        return (await self._state(id))[1]

    async def ask(self, id: str, question: str, query: Query) -> Answer:
        """The answer to a question of `QUESTIONS`. Raises NotFound, InvalidInput, AnalysisUnavailable."""
        if question not in QUESTIONS:
            raise NotFound(f"there is no question {question!r}; there are {', '.join(QUESTIONS)}")
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
        """Starts the process and has it read an experiment, if none runs: a page is asked for, whose charts will ask.
        Does not wait; what fails here is told to the first question."""
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
        """The process; started if there is none. Raises AnalysisUnavailable."""
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
