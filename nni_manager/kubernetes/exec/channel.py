"""The channel exec: commands in pods, started through the cluster's API, write parameters and code and read results.

For clusters that can neither reach this machine nor share storage with it. Each call is self-contained: an interrupted
one is repeated from the stored offsets. The runner's container waits until it is released after the last read. The
other side is `trial_runner.runner.exec_channel`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiofiles

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import AttemptDecided, NniManagerError, NotFound, VersionRefused
from nni_manager.kubernetes.api.client import Object, Refusal
from nni_manager.kubernetes.exec.channel_selection import Choices, told_channel
from nni_manager.kubernetes.exec.stream import ExecFailed
from nni_manager.kubernetes.jobs.job_memory import JobMemory
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.tasks import ended, happened
from nni_manager.shared_storage import kept_logs
from trial_runner import protocol
from trial_runner.wire import stderr_end

log = logging.getLogger(__name__)

#: Maximum number of concurrent commands in pods.
_AT_ONCE = 8
#: Maximum seconds for leaving the adapter.
_LETTING_GO_S = 3.0
_CHUNK = 256 * 1024

#: (pod, verb of `exec_channel`, stdin) → stdout.
Execute = Callable[[Object, str, AsyncIterator[bytes]], Awaitable[bytes]]
#: Job name → the record of its parameters.
Record = Callable[[str], Awaitable[str]]


class ExecChannel:
    """The reading of one service's results through the channel exec. `sends_code`: the image lacks the code;
    `on_chosen`: called with the channel that a pod has chosen."""

    def __init__(
        self, host: Host, execute: Execute, record: Record, on_chosen: Callable[[str], None], *, sends_code: bool
    ) -> None:
        self.host = host
        self.on_chosen = on_chosen
        self._execute = execute
        self._record = record
        self._sends_code = sends_code
        self._attempts: dict[str, Attempt] = {}
        #: Tasks that release the pods of forgotten jobs: a pod keeps its resources until it is released.
        self._letting_go: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def follow(self, memory: JobMemory, attempt_directory: str) -> None:
        """Starts reading a job's results; idempotent. `attempt_directory`: the folder for copies of its logs."""
        if memory.name not in self._attempts:
            self._attempts[memory.name] = Attempt(self, memory, Path(attempt_directory))

    def notice(self, memory: JobMemory) -> None:
        """Notes that a job's object or its pods have changed."""
        if memory.name in self._attempts:
            self._attempts[memory.name].news.set()

    def seen(self, memory: JobMemory, report: Observation) -> Observation:
        """The report to return: the end is held back until all results have been read."""
        return report  # pods wait until they have been read

    def forget(self, memory: JobMemory) -> None:
        attempt = self._attempts.pop(memory.name, None)
        if attempt is None:
            return
        if attempt.lets_go:
            attempt.finish()
            self._letting_go.add(attempt.task)
            attempt.task.add_done_callback(self._letting_go.discard)
        else:
            attempt.task.cancel()

    async def close(self) -> None:
        attempts = list(self._attempts.values())
        for attempt in attempts:
            self.forget(attempt.memory)
        if self._letting_go:
            await asyncio.wait(self._letting_go, timeout=_LETTING_GO_S)
        await ended(*(attempt.task for attempt in attempts), *self._letting_go)

    async def execute(self, pod: Object, verb: str, stdin: bytes | AsyncIterator[bytes] = b"") -> bytes:
        """The output of a command in a pod. Raises Refusal, ExecFailed, PlatformUnavailable."""
        async with self._turns:
            return await self._execute(pod, verb, _once(stdin) if isinstance(stdin, bytes) else stdin)

    async def filling(self, job_name: str) -> AsyncIterator[bytes]:
        """The content to write into the job's pods: parameters, then the code."""
        code = await self.host.code() if self._sends_code else None
        size = (await asyncio.to_thread(code.stat)).st_size if code is not None else 0
        yield protocol.encode({"record": await self._record(job_name), "code": size})
        if code is not None:
            async with aiofiles.open(code, "rb") as file:
                while data := await file.read(_CHUNK):
                    yield data


#: Seconds between two reads of a pod: while it has news, and at most.
_SHORTEST_WAIT_S = 0.5
_LONGEST_WAIT_S = 10.0
_GROWTH = 1.5
#: Seconds without posts after which a posting runner is read instead: its posts do not arrive.
_SILENT_S = 20.0


class Attempt:
    """One job on the channel exec. Its reporter is the pod from which results are read."""

    def __init__(self, channel: ExecChannel, memory: JobMemory, logs: Path) -> None:
        """`logs`: the folder for copies of its logs."""
        self._channel = channel
        self._host = channel.host
        self.memory = memory
        self._logs = logs
        #: Set when its pods have changed.
        self.news = asyncio.Event()
        self._choices = Choices(self._ask, channel.on_chosen)
        #: uids of pods that have parameters and code.
        self._filled: set[str] = set()
        #: Number of stored bytes of each outbox; None: not queried yet.
        self._offsets: dict[str, int] | None = None
        self._container = ""
        self._wait_s = _SHORTEST_WAIT_S
        self._is_over = False
        #: uids of released pods; pods that the operator starts later are read, too.
        self._released: set[str] = set()
        #: Everything is stored, and its pods are being released.
        self.lets_go = False
        self._trouble = ""
        self.task = asyncio.create_task(self._run(), name=f"exec {memory.job_name}")

    async def _run(self) -> None:
        """Serves the job's pods until it is forgotten; the operator may start new pods after ended ones."""
        while not self._is_over:
            self.news.clear()
            try:
                has_news = await self._look()
                self._trouble = ""
            except (NniManagerError, Refusal, ExecFailed, OSError) as error:
                has_news = False
                self._complain(error)
            except Exception as error:  # a pod's answer may be invalid, which must not end the loop
                has_news = False
                self._complain(error, is_ours=True)
            self._wait_s = _SHORTEST_WAIT_S if has_news else min(_LONGEST_WAIT_S, _GROWTH * self._wait_s)
            if not self._is_over:
                await self._pause()

    def finish(self) -> None:
        """Ends `run` after its current step."""
        self._is_over = True
        self.news.set()

    async def _pause(self) -> None:
        """Waits for an event of the pods, or until the next read is due.

        Events arrive in bursts; most change nothing, so one wake-up serves a burst.
        """
        read = [pod for pod in self._running() if self._is_read(pod)]
        if not read:
            self._wait_s = _SHORTEST_WAIT_S
        if any(pod["metadata"].get("deletionTimestamp") for pod in read):
            self._wait_s = _SHORTEST_WAIT_S  # its pods may soon be gone
        due_s = self._choices.due_s(self._running())
        now_s = asyncio.get_running_loop().time()
        waits = [*([self._wait_s] if read else []), *([max(0.0, due_s - now_s)] if due_s is not None else [])]
        if not read and self._pushing() is not None:
            waits.append(max(_SHORTEST_WAIT_S, _SILENT_S - self._silence_s()))
        await happened(self.news, asyncio.timeout(min(waits, default=None)))

    def _is_read(self, pod: Object) -> bool:
        if self._choices.of_now(pod) == protocol.EXEC:
            return True
        pushing = self._pushing()
        return pushing is not None and _uid(pushing) == _uid(pod) and self._silence_s() >= _SILENT_S

    def _pushing(self) -> Object | None:
        """The reporter pod if it runs and has chosen to post; otherwise None."""
        pod = self._reporter()
        has_choice = pod is not None and told_channel(pod) == protocol.PUSH_OR_EXEC
        return pod if has_choice and pod is not None and self._choices.of_now(pod) == protocol.PUSH else None

    def _silence_s(self) -> float:
        return self._host.silence_s(self.memory.job_name) or 0.0

    def _reporter(self) -> Object | None:
        """The reporter pod; None if it does not run."""
        name = self.memory.reporter()
        return next((pod for pod in self._running() if pod["metadata"]["name"] == name), None)

    async def _ask(self, pod: Object) -> str:
        """The channel that a pod's runner has chosen; empty: not yet."""
        data = await self._channel.execute(pod, "channel")
        return next((str(frame.get("channel") or "") for frame in protocol.Decoder().feed(data)), "")

    def _complain(self, error: Exception, *, is_ours: bool = False) -> None:
        if repr(error) != self._trouble:
            log.warning(
                "job %s cannot be read through the cluster's API now: %s",
                self.memory.job_name,
                error,
                exc_info=error if is_ours else None,
            )
        self._trouble = repr(error)

    def _running(self) -> list[Object]:
        running = [pod for pod in self.memory.pods.values() if _is_running(pod, self.memory.container)]
        return [pod for pod in running if _uid(pod) not in self._released]

    async def _look(self) -> bool:
        """Fills pods and reads the reporter; returns whether anything was new."""
        for pod in self._running():
            if _uid(pod) not in self._filled and await self._choices.of(pod) == protocol.EXEC:
                await self._channel.execute(pod, "fill", self._channel.filling(self.memory.name))
                self._filled.add(_uid(pod))
        reporter = self._reporter()
        if reporter is None or not self._is_read(reporter):
            return False
        return await self._read(reporter)

    async def _read(self, pod: Object) -> bool:
        if self._offsets is None:
            self._offsets = dict(await self._host.stored(self.memory.job_name))
        logs = await asyncio.to_thread(_sizes, self._logs)
        question = protocol.encode({"outboxes": self._offsets, "logs": logs})
        data = await self._channel.execute(pod, "read", question)
        has_news = False
        for frame in protocol.Decoder().feed(data):
            has_news = await self._take(frame) or has_news
        return has_news

    async def _take(self, frame: Mapping[str, Any]) -> bool:
        match frame.get("event"):
            case "greeting":
                return await self._register(frame)
            case "lines":
                return await self._take_lines(frame)
            case "log":
                await asyncio.to_thread(_append, self._logs, frame, self._host.max_log_bytes)
                return True
            case "exited":
                await self._take_end(frame)
        return False

    async def _register(self, frame: Mapping[str, Any]) -> bool:
        container = str(frame.get("container") or "")
        if self._container and container == self._container:
            return False
        version = frame.get("version")
        try:
            await self._host.register(
                self.memory.job_name,
                version if isinstance(version, str) else None,
                protocol.EXEC,
                container=container,
                outboxes=frame.get("outboxes"),
            )
        except (VersionRefused, AttemptDecided) as error:
            log.info("stopped reading job %s: %s", self.memory.job_name, error)
            self._is_over = True
            return False
        self._container = container
        self._offsets = dict(await self._host.stored(self.memory.job_name))
        return True

    async def _take_lines(self, frame: Mapping[str, Any]) -> bool:
        outbox, end = str(frame["outbox"]), int(frame["end"])
        delivery = await self._host.deliver(
            self.memory.job_name, outbox, int(frame["start"]), end, list(frame["lines"]), container=self._container
        )
        if delivery.resend:
            self._offsets = None
            raise NotFound(f"bytes of {outbox} before {frame['start']} are not stored; reading them again")
        if self._offsets is not None:
            self._offsets[outbox] = end
        return True

    async def _take_end(self, frame: Mapping[str, Any]) -> None:
        """Passes on how the command ended, now that everything is stored, and releases the pods."""
        tail = "" if frame.get("exit_code") == 0 else await asyncio.to_thread(stderr_end.read, str(self._logs))
        word = {
            "exitCode": frame.get("exit_code"),
            "signal": frame.get("signal"),
            "stderrTail": tail,
            "startedMs": frame.get("started_ms"),
            "endedMs": frame.get("ended_ms"),
            "outboxes": frame.get("outboxes") or {},
            "container": str(frame.get("container") or ""),
            "doubt": "",
            "wasStarted": frame.get("pid") != 0,
        }
        self.lets_go = True
        try:
            await self._host.exited(self.memory.job_name, json.dumps(word))
            for pod in self._running():
                await self._release(pod)
        finally:
            self.lets_go = False

    async def _release(self, pod: Object) -> None:
        with suppress(NniManagerError, Refusal, ExecFailed):  # the pod may have just ended
            if _uid(pod) in self._filled or self._is_read(pod):
                await self._channel.execute(pod, "release")
        self._released.add(_uid(pod))


def _uid(pod: Object) -> str:
    return str(pod["metadata"].get("uid"))


def _is_running(pod: Object, container: str) -> bool:
    """Whether a pod's container runs, so that it can execute commands."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    mine = [one for one in statuses if one.get("name") == container] or statuses
    return any("running" in (one.get("state") or {}) for one in mine)


async def _once(data: bytes) -> AsyncIterator[bytes]:
    if data:
        yield data


def _sizes(folder: Path) -> dict[str, int]:
    found = {}
    for name in protocol.LOG_FILES:
        with suppress(OSError):
            found[name] = kept_logs.size(str(folder), name)
    return found


def _append(folder: Path, frame: Mapping[str, Any], most_bytes: int) -> None:
    """Writes part of a log at its offset, keeping existing bytes. Blocks. Raises OSError."""
    name = frame.get("file")
    if name in protocol.LOG_FILES:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = base64.b64decode(frame["data"])
        kept_logs.append(str(folder), str(name), int(frame["offset"]), data, most_bytes)
