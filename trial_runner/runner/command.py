"""The user's command and all processes that it starts, until their end; and the evidence of the end.

The evidence is in a folder that the manager may read, with the container that owns the folder (the last registered of
an attempt). A runner has one command and is the subreaper (often also process 1), so all processes below it belong to
the command. It uses no process descriptors: clusters have kernels without them. In a container without `/proc`,
descendants cannot be found: the command's process group is used instead or, for process 1, all processes.
"""

import json
import os
import signal
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from trial_runner import processes, protocol
from trial_runner.launch import Streams, launch
from trial_runner.loop import Loop, Timer
from trial_runner.processes import Exit
from trial_runner.runner.settings import Settings
from trial_runner.wire import foreign_files, shortage, stderr_end

#: Seconds until killed processes are checked again; usually SIGCHLD arrives before.
_LOOK_AGAIN_S = 0.1
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class ProcessTree:
    """`on_end`: called once, when all processes of the command are gone."""

    def __init__(self, loop: Loop, on_end: Callable[[Exit], None]) -> None:
        self._loop = loop
        self._on_end = on_end
        self.main_pid = 0
        self._exit: Optional[Exit] = None
        self._is_over = False
        self._kill_at = 0.0
        self._kill_timer: Optional[Timer] = None

    def start(self, command: str, directory: str, environment: Dict[str, str], stdout: str, stderr: str) -> None:
        """Appends the command's output to two files. No thread may run yet. Raises OSError and ValueError."""
        descriptors = [os.open(os.devnull, os.O_RDONLY)]
        try:
            descriptors += [_open_output(path) for path in (stdout, stderr)]
            streams = Streams(*descriptors)
            self.main_pid = shortage.tried_again(lambda: launch(command, directory, environment, streams))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def terminate(self, number: int, grace_s: float) -> None:
        """Sends a signal to all, and SIGKILL to the rest after `grace_s` seconds; the shortest of several calls
        counts."""
        kill_at = time.monotonic() + grace_s
        if self._is_over or (self._kill_timer is not None and self._kill_at <= kill_at):
            return
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        elif grace_s > 0:
            self._signal(number)
        self._kill_at = kill_at
        self._kill_timer = self._loop.call_later(grace_s, self.look)

    def tell(self, number: int) -> None:
        """Sends a signal to the processes that catch it; none if that cannot be seen."""
        for pid in processes.with_descendants(processes.children(os.getpid())):
            if processes.catches(pid, number):
                processes.send_signal(pid, number)

    def look(self) -> None:
        """Checks all processes; called when a child has ended."""
        if self._is_over:
            return
        self._reap()
        is_kill_due = self._kill_timer is not None and self._kill_at <= time.monotonic()
        if self._exit is not None and not self._has_living():
            self._finish(self._exit)
        elif is_kill_due or (self._exit is not None and self._kill_timer is None):
            self._signal(signal.SIGKILL)
            self._loop.call_later(_LOOK_AGAIN_S, self.look)

    def _signal(self, number: int) -> None:
        if not processes.are_shown():
            return processes.signal_unseen(self.main_pid, number)
        living = processes.with_descendants(processes.children(os.getpid()))
        # the main process first: a shell that outlives its child would begin the next command
        for pid in sorted(living, key=lambda pid: pid != self.main_pid):
            processes.send_signal(pid, number)

    def _has_living(self) -> bool:
        """Whether any process is left, of those that can be found."""
        can_be_reached = os.getpid() == 1 or processes.are_shown()
        return processes.has_children() and (can_be_reached or processes.has_group(self.main_pid))

    def _reap(self) -> None:
        with suppress(ChildProcessError):  # none is left
            pid, status = os.waitpid(-1, os.WNOHANG)
            while pid:
                if pid == self.main_pid:
                    self._exit = processes.exit_of(status)
                pid, status = os.waitpid(-1, os.WNOHANG)

    def _finish(self, exit_: Exit) -> None:
        self._is_over = True
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._on_end(exit_)


def _open_output(path: str) -> int:
    descriptor = foreign_files.open_file(*os.path.split(path), flags=_APPENDING, mode=0o666)
    os.set_blocking(descriptor, True)  # the command inherits it
    return descriptor


#: Seconds between two checks of a folder that another container may take over.
LOOK_S = 5.0
#: Maximum size of a registration, which names up to `protocol.MOST_OUTBOXES` outboxes.
_REPORT_BYTES = 1024 * 1024


class Claim:
    """The claim of one container on a folder that the manager reads."""

    def __init__(self, folder: str, container: str) -> None:
        self._folder = folder
        self._container = container

    def make(self, registration: Dict[str, Any]) -> None:
        """Writes the registration for the manager. Raises OSError."""
        foreign_files.write_whole(self._folder, protocol.RUNNER_FILE, json.dumps(registration).encode(), 0o666)

    def is_lost(self) -> bool:
        """Whether another container has registered since; False if that cannot be read: storage may fail for a
        while."""
        try:
            report = foreign_files.read(self._folder, protocol.RUNNER_FILE, 0, _REPORT_BYTES)
            holder = json.loads(report.decode()).get("container")
        except (OSError, ValueError, AttributeError):
            return False
        return isinstance(holder, str) and holder not in ("", self._container)


class Left(NamedTuple):
    """Files that a container leaves: sizes of outboxes and logs, and sentences about undelivered data."""

    container: str
    outboxes: Dict[str, int]
    logs: Dict[str, int]
    undelivered: List[str]
    #: Sentence about outboxes that are missing now; or empty.
    gone: str = ""


class Evidence(NamedTuple):
    """The evidence of a command's end; one of `exit_code` and `signal` is set."""

    pid: int
    exit_code: Optional[int]
    signal: Optional[int]
    started_ms: int
    ended_ms: int
    #: At most 2048 bytes of standard error, of a failed command.
    stderr_tail: str

    @classmethod
    def of(cls, folder: str, exit_: Exit, pid: int, started_ms: int) -> "Evidence":
        tail = "" if exit_.exit_code == 0 else stderr_end.read(folder)
        return cls(pid, exit_.exit_code, exit_.signal, started_ms, now_ms(), tail)

    @classmethod
    def not_started(cls, exit_code: int, sentence: str) -> "Evidence":
        """The evidence of a command that never ran. The sentence says why."""
        return cls(0, exit_code, None, now_ms(), now_ms(), sentence[: protocol.MAX_STDERR_TAIL // 4])

    @property
    def exit_code_of_runner(self) -> int:
        return 128 + (self.signal or 0) if self.exit_code is None else self.exit_code

    @property
    def was_started(self) -> bool:
        return self.pid != 0

    def status(self, outboxes: Dict[str, int], undelivered: List[str]) -> Dict[str, Any]:
        """The body of the status post. `outboxes`: number of reported bytes."""
        return {
            "event": "exited",
            "exitCode": self.exit_code,
            "signal": self.signal,
            "stderrTail": self.stderr_tail,
            "startedMs": self.started_ms,
            "endedMs": self.ended_ms,
            "nowMs": now_ms(),
            "outboxes": outboxes,
            "undelivered": undelivered,
            "wasStarted": self.was_started,
        }

    def write(self, settings: Settings, left: Left, say: Callable[[str], None]) -> None:
        """Writes the exit file, like the keeper, with the list of files to read."""
        content = {
            "name": settings.job_name,
            "pid": self.pid,
            "state": protocol.ENDED,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "started_ms": self.started_ms,
            "ended_ms": self.ended_ms,
        }
        content.update(left._asdict())
        try:
            foreign_files.write_whole(settings.system_dir, protocol.EXIT_FILE, json.dumps(content).encode(), 0o666)
        except OSError as error:
            say("The exit file cannot be written: {}".format(error))


def _boot_ms() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)


#: Boot time of the machine in milliseconds since the epoch, by its clock when this process started.
_BOOTED_MS = time.time_ns() // 1000000 - _boot_ms()


def now_ms() -> int:
    """Milliseconds since the epoch by the clock as it was when this process started: differences of two values are
    durations, even if the clock is set."""
    return _BOOTED_MS + _boot_ms()
