"""The tuner host as a child process of the daemon; it runs an experiment's tuner, its assessor or both.

`trial_runner.tuner_host` is the program in it. Calls are serialized. `TunerHost` starts, calls, inspects and ends the
process; `feed` decides when.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nni_manager.domain.errors import TunerDied, TunerNotStarted, TunerRaised
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.platform_kit import child_process
from nni_manager.platform_kit.payload import TUNER_HOST, with_stand_in
from nni_manager.scheduler.tuning.orphans import MARK_VARIABLE, end_orphans, new_mark
from nni_manager.store.nni import nni_format
from trial_runner import protocol
from trial_runner.tuner_host.process import CHECKPOINT_FOLDER, STACK_FILE
from trial_runner.wire import foreign_files
from trial_runner.wire.shortage import is_shortage

_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND

#: Seconds for the process to end after its input is closed, for example to save its state. The daemon's end waits for
#: it.
_END_TIMEOUT_S = 2.0
#: Number of reads of the stack file, and the seconds before each.
_STACK_LOOKS = 40
_STACK_LOOK_S = 0.05


class TunerHost:
    """The process of a tuner, an assessor or both; created by `start`, unusable after `close` or TunerDied."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        mark: str,
        log_file: Path,
        stack_file: Path,
        on_news: Callable[[], object],
        log_begin: int,
    ) -> None:
        """`log_begin`: the size in bytes of the log file, to which earlier processes may have written."""
        self._process = process
        self._on_news = on_news
        self._mark = mark
        self._log_file = log_file
        self._log_begin = log_begin
        self._stack_file = stack_file
        self._number = 0
        #: Request → its answer.
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        #: Why answers have ended.
        self._end: TunerDied | None = None
        self._reading = asyncio.create_task(self._read(), name=f"answers of tuner process {process.pid}")

    @classmethod
    async def start(
        cls,
        *,
        command: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        folder: Path,
        log_folder: Path,
        gpus: str,
        on_news: Callable[[], object] = lambda: None,
    ) -> TunerHost:
        """`command`: Python with arguments, run in `directory`; `folder`: for the tuner's checkpoints; `on_news`:
        called when an owed proposal is ready. Raises TunerDied if it cannot start, TunerNotStarted if only for now."""
        log_file, stack_file = log_folder / "dispatcher.log", log_folder / "tuner-stack.txt"
        mark = new_mark(log_folder)
        variables = {
            **environment,
            MARK_VARIABLE: mark,
            protocol.ENV_GPUS: gpus,
            STACK_FILE: str(stack_file),
            CHECKPOINT_FOLDER: str(folder),
            "NNI_LOG_DIRECTORY": str(log_folder),
        }
        try:
            os.makedirs(log_folder, mode=0o700, exist_ok=True)
            with os.fdopen(foreign_files.open_file(str(log_folder), log_file.name, _APPENDING), "ab") as errors:
                log_begin = os.fstat(errors.fileno()).st_size
                nni_format.nni_log_name(log_file)
                process = await child_process.start(
                    *command,
                    patience_s=0.0,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    cwd=directory,
                    env=variables,
                    start_new_session=True,
                )
        except OSError as error:
            kind = TunerNotStarted if is_shortage(error) else TunerDied
            raise kind(f"the tuner could not start with {command[0]}: {error}") from error
        return cls(process, mark, log_file, stack_file, on_news, log_begin)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(self, verb: str, *, patience_s: float, on_silence: Callable[[], object], **arguments: Any) -> Any:
        """Calls a verb and waits; `on_silence` is called once if the answer takes longer than `patience_s` seconds.

        Raises TunerRaised with the algorithm's traceback, or TunerDied.
        """
        self._number += 1
        answer = asyncio.ensure_future(self._exchange({"verb": verb, "id": self._number, **arguments}))
        try:
            done, _ = await asyncio.wait({answer}, timeout=patience_s)
            if not done:
                on_silence()
            message = await answer
        finally:
            answer.cancel()
        if (error := message.get("error")) is not None:
            raise TunerRaised(error["message"], error.get("details", ""))
        return message["result"]

    async def stacks(self) -> str:
        """The stack of every thread of the process; empty: it wrote none."""
        with suppress(OSError):  # without it only the stack is missing
            self._stack_file.write_bytes(b"")  # the process holds it open for appending
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
        text = ""
        for _ in range(_STACK_LOOKS):
            await asyncio.sleep(_STACK_LOOK_S)
            before, text = text, _text_of(self._stack_file)
            if text.endswith("\n") and text == before:  # it is written in pieces
                break
        return text

    async def close(self, *, kill: bool = False) -> None:
        """Ends the process and its descendants. `kill`: without waiting for a clean exit. Idempotent."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if not kill and self._process.returncode is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_TIMEOUT_S):
                    await self._process.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._reading.cancel()
        await asyncio.wait({self._reading})
        await asyncio.to_thread(end_orphans, self._mark)

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._end is not None:
            raise self._end
        assert self._process.stdin is not None
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[request["id"]] = answer
        try:
            self._process.stdin.write(protocol.encode(request))
            await self._process.stdin.drain()
        except (ConnectionError, RuntimeError):  # the pipe is closed; uvloop raises RuntimeError
            self._kill()
        try:
            return await answer
        finally:
            del self._answers[request["id"]]

    async def _read(self) -> None:
        """Delivers answers until the process ends."""
        try:
            self._end = await self._read_frames() or await self._died()
        except asyncio.CancelledError:
            self._end = TunerDied("the tuner's process was ended")
            raise
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    assert self._end is not None
                    answer.set_exception(self._end)

    async def _read_frames(self) -> TunerDied | None:
        """The error that makes the process unusable; None: its output has ended."""
        assert self._process.stdout is not None
        decoder = protocol.Decoder()
        try:
            while data := await self._process.stdout.read(1 << 16):
                for message in decoder.feed(data):
                    if "event" in message:
                        self._on_news()
                    elif (answer := self._answers.get(message["id"])) is not None and not answer.done():
                        answer.set_result(message)
        except (ConnectionError, RuntimeError):
            self._kill()
        except (ValueError, protocol.FrameTooLarge) as error:
            return TunerDied(f"the tuner's process sent an invalid answer: {error}")
        return None

    async def _died(self) -> TunerDied:
        code = await self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        folder, name = str(self._log_file.parent), self._log_file.name
        with suppress(OSError):  # removed: the reason is missing
            written = foreign_files.size(folder, name) - self._log_begin
            words = foreign_files.tail(folder, name, min(4000, max(0, written))).decode(errors="replace")
            return TunerDied(f"the tuner's process ended ({how})", words)
        return TunerDied(f"the tuner's process ended ({how})")

    def _kill(self) -> None:
        """Ends the process, which is unusable without its pipes."""
        with suppress(ProcessLookupError):
            self._process.kill()


def _text_of(path: Path) -> str:
    return foreign_files.tail(str(path.parent), path.name, 65536).decode(errors="replace")


#: Prefixes of variables that configure a Python; the caller's belong to the caller's Python.
_OF_PYTHON = ("PYTHON", "LD_")
#: Verbs that go to both tuner and assessor.
_FOR_BOTH = ("start", "learn", "judge")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlace:
    """The Python, environment and folders that the processes are started with."""

    #: The Python of users' classes.
    interpreter: str
    #: The caller's environment; read when a process is started.
    environment: Mapping[str, str] = field(repr=False)
    folder: Path
    log_folder: Path


class TunerHosts:
    """One or two processes with the interface of one `TunerHost`; created by `start`."""

    def __init__(self, tuner: TunerHost, assessor: TunerHost) -> None:
        """`tuner`, `assessor`: the same host twice if one process runs both, or only the tuner exists."""
        self._tuner = tuner
        self._assessor = assessor
        self._asked = tuner
        #: Whether the tuner wants intermediate results, too.
        self._watches = False

    @classmethod
    async def start(cls, place: HostPlace, spec: ExperimentSpec, on_news: Callable[[], object]) -> TunerHosts:
        """The processes of tuner and assessor. Raises TunerDied when one cannot be started."""
        tuner = await _start(place, spec, on_news, is_users=bool(spec.tuner.class_name))
        assessor = spec.assessor
        if assessor is None or bool(assessor.class_name) == bool(spec.tuner.class_name):
            return cls(tuner, tuner)
        try:
            return cls(tuner, await _start(place, spec, on_news, is_users=bool(assessor.class_name)))
        except BaseException:
            await tuner.close(kill=True)
            raise

    async def call(self, verb: str, *, patience_s: float, on_silence: Callable[[], object], **arguments: Any) -> Any:
        """Calls the tuner, the assessor or both, as `TunerHost.call`; the tuner's answer if both."""
        if self._tuner is self._assessor:
            return await self._ask(self._tuner, verb, patience_s, on_silence, arguments)
        answer: Any = {}
        if verb != "judge" or self._watches:
            alone = _without("assessor", arguments)
            answer = await self._ask(self._tuner, verb, patience_s, on_silence, alone)
        if verb in _FOR_BOTH:
            alone = _without("tuner", arguments)
            judged = await self._ask(self._assessor, verb, patience_s, on_silence, alone)
            if verb == "judge":
                answer = {"stop": [*answer.get("stop", ()), *judged["stop"]]}
        if verb == "start":
            self._watches = answer["watches"]
        return answer

    async def stacks(self) -> str:
        """The stacks of the process that was called last."""
        return await self._asked.stacks()

    async def close(self, *, kill: bool = False) -> None:
        """Ends the processes. Idempotent."""
        await asyncio.gather(*(host.close(kill=kill) for host in {self._tuner, self._assessor}))

    async def _ask(
        self, host: TunerHost, verb: str, patience_s: float, on_silence: Callable[[], object], arguments: dict[str, Any]
    ) -> Any:
        self._asked = host
        return await host.call(verb, patience_s=patience_s, on_silence=on_silence, **arguments)


async def _start(place: HostPlace, spec: ExperimentSpec, on_news: Callable[[], object], *, is_users: bool) -> TunerHost:
    """Starts a process; users' classes start in the trials' folder, on which ``python3`` may depend, as with pyenv."""
    own = [sys.executable, "-m", "nni_manager.scheduler.tuning.process"]
    return await TunerHost.start(
        command=[place.interpreter, TUNER_HOST] if is_users else own,
        environment=with_stand_in(place.environment if is_users else _for_our_python(place.environment)),
        directory=Path(spec.trial_code_directory) if is_users else place.folder,
        folder=place.folder,
        log_folder=place.log_folder,
        gpus=",".join(map(str, spec.tuner_gpu_indices or ())),
        on_news=on_news,
    )


#: Threads of numpy's linear algebra, unless the caller sets a number. On the small matrices of tuners, several threads
#: wait for each other: a Gaussian process took five times the processor time on a busy machine.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


def _for_our_python(environment: Mapping[str, str]) -> dict[str, str]:
    callers = {name: value for name, value in environment.items() if not name.startswith(_OF_PYTHON)}
    return _ONE_THREAD | callers | {name: value for name, value in os.environ.items() if name.startswith(_OF_PYTHON)}


def _without(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with `name`, which is for the other process, set to None."""
    return {**arguments, name: None} if name in arguments else arguments
