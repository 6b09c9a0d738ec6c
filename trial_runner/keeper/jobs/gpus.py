"""This machine's GPUs, read by a separate process, as a hanging driver must not block the keeper.

A request starts the process; it stays for further requests and ends with its input. A hanging one is killed; until it
is gone, no other is started.
"""

import json
import os
import shlex
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from trial_runner import processes
from trial_runner.keeper.jobs import process_tags
from trial_runner.keeper.jobs.job import Job, Jobs
from trial_runner.launch import PROGRAM, Streams, launch
from trial_runner.loop import Loop, Timer

#: Seconds after which a request gets an error; less than the time limit of the keeper's client.
_ANSWER_S = 8.0
#: Seconds after which the process is killed; a driver that wakes many cards is slow.
_MOST_S = 60.0
#: Seconds that the process stays without requests.
_IDLE_S = 60.0
#: Maximum number of a process's ancestors to check for its job.
_MOST_PARENTS = 64
#: Maximum size of a reading in bytes.
_MOST_BYTES = 16 * 1024 * 1024
_READ_BYTES = 64 * 1024

Reading = Dict[str, Any]
Tell = Callable[[Reading], None]


class Gpus:
    """Answers are the *reading* of the wire contract."""

    def __init__(self, loop: Loop, jobs: Jobs, log: Callable[[str], None]) -> None:
        self._loop = loop
        self._jobs = jobs
        self._log = log
        self._last: Optional[Reading] = None
        self._last_at = 0.0
        self._asked: List[_Asked] = []
        self._process: Optional[_Process] = None
        #: Start time of the current reading; None: none.
        self._reading_since: Optional[float] = None
        self._limit: Optional[Timer] = None
        self._idle: Optional[Timer] = None

    def read(self, max_age_s: float, tell: Tell) -> None:
        """Calls `tell` once: immediately if the last reading is recent enough, and after a time limit at the latest."""
        if self._last is not None and time.monotonic() - self._last_at <= max_age_s:
            tell(self._told(self._last))
            return
        asked = _Asked(tell)
        asked.timer = self._loop.call_later(_ANSWER_S, lambda: self._lose_patience(asked))
        self._asked.append(asked)
        self._begin()

    def close(self) -> None:
        """Ends the process through its input."""
        if self._process is not None:
            self._process.close(self._loop)
            self._process = None

    # A reading

    def _begin(self) -> None:
        if self._reading_since is not None:
            return
        if self._idle is not None:
            self._idle.cancel()
        try:
            if self._process is None:
                self._process = self._start()
            os.write(self._process.input, b"\n")
        except OSError as error:
            self.close()
            self._finish(_failure("the GPUs cannot be read: {}".format(error.strerror)))
            return
        self._reading_since = time.monotonic()
        self._limit = self._loop.call_later(_MOST_S, self._kill)

    def _start(self) -> "_Process":
        process = _Process()
        self._loop.watch(process.output, lambda _: self._on_output(process))
        return process

    def _on_output(self, process: "_Process") -> None:
        try:
            data = os.read(process.output, _READ_BYTES)
        except BlockingIOError:
            return
        process.received += data
        if not data or len(process.received) > _MOST_BYTES:
            self._broke(process)
        elif process.received.endswith(b"\n"):
            text, process.received = process.received, b""
            self._finish(_parsed(text))

    def _broke(self, process: "_Process") -> None:
        was_killed = process.is_killed
        process.kill()
        self.close()
        if self._reading_since is not None:
            why = "the driver hangs" if was_killed else "the process that reads them died"
            self._finish(_failure("the GPUs cannot be read: {}".format(why)))

    def _kill(self) -> None:
        """Kills the hanging process. One that the driver does not release stays the current reading."""
        assert self._process is not None
        self._log("the process that reads the GPUs hangs; killing it")
        self._process.kill()

    def _finish(self, reading: Reading) -> None:
        self._reading_since = None
        if self._limit is not None:
            self._limit.cancel()
        if self._process is not None:
            self._idle = self._loop.call_later(_IDLE_S, self._end_idle)
        self._last, self._last_at = reading, time.monotonic()
        asked, self._asked = self._asked, []
        for one in asked:
            one.answer(self._told(reading))

    def _end_idle(self) -> None:
        if self._reading_since is None:
            self.close()

    def _lose_patience(self, asked: "_Asked") -> None:
        self._asked.remove(asked)
        since = self._reading_since
        passed_s = 0.0 if since is None else time.monotonic() - since
        asked.answer(_failure("the driver has not answered for {:.0f} s".format(passed_s)))

    # The jobs of processes

    def _told(self, reading: Reading) -> Reading:
        """The reading with its age, and the jobs of this keeper that its processes belong to."""
        mains = {job.main.pid: job for job in self._jobs.running() if job.main is not None}
        found = {p["pid"] for card in reading["cards"] for p in card["processes"] if p.get("job") is None}
        owners = {pid: self._job_of(pid, mains) for pid in found}
        for card in reading["cards"]:
            for process in card["processes"]:
                if process.get("job") is None:  # a known job stays known after the process is gone
                    process["job"] = owners[process["pid"]]
        return dict(reading, age_s=round(time.monotonic() - self._last_at, 3))

    def _job_of(self, pid: int, mains: Dict[int, Job]) -> Optional[str]:
        parent = pid
        for _ in range(_MOST_PARENTS):
            stat = processes.read_stat(parent)
            if stat is None or parent <= 1:
                break
            if parent in mains or stat.session in mains:
                return mains[parent if parent in mains else stat.session].name
            parent = stat.parent
        for job in mains.values():  # a process that left its parents
            if process_tags.is_marked(pid, job.name, job.claim.tag):
                return job.name
        return None


class _Asked:
    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.timer: Optional[Timer] = None

    def answer(self, reading: Reading) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self._tell(reading)


class _Process:
    """Raises OSError if it cannot start."""

    def __init__(self) -> None:
        child_input, self.input = os.pipe()
        self.output, child_output = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        try:
            os.set_blocking(self.output, False)
            os.set_blocking(self.input, False)
            command = "exec {} -S -m trial_runner.gpu_probe".format(shlex.quote(sys.executable or "python3"))
            environment = dict(os.environ, PYTHONPATH=PROGRAM, PYTHONDONTWRITEBYTECODE="1")
            self.pid = launch(command, "/", environment, Streams(child_input, child_output, null))
        except BaseException:
            os.close(self.input)
            os.close(self.output)
            raise
        finally:
            for descriptor in (child_input, child_output, null):
                os.close(descriptor)
        self.received = b""
        self.is_killed = False

    def close(self, loop: Loop) -> None:
        loop.unwatch(self.output)
        os.close(self.input)
        os.close(self.output)

    def kill(self) -> None:
        """Kills the process and its session; the keeper's reaping of orphans reaps it."""
        self.is_killed = True
        stat = processes.read_stat(self.pid)
        if stat is not None and stat.parent == os.getpid() and stat.session == self.pid:
            os.killpg(self.pid, signal.SIGKILL)


def _parsed(text: bytes) -> Reading:
    try:
        reading = json.loads(text.decode())
    except ValueError:
        return _failure("the process that reads the GPUs sent an invalid reading")
    return reading if isinstance(reading, dict) else _failure("the process that reads the GPUs sent no reading")


def _failure(error: str) -> Reading:
    return {"source": "", "cards": [], "error": error, "is_absent": False, "age_s": 0.0}
