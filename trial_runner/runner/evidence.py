"""The evidence that a runner leaves in a folder the manager reads: how the command ended, and the container that has
the folder (of several of one attempt the latest registered)."""

import json
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from trial_runner import protocol
from trial_runner.processes import Exit
from trial_runner.runner.output import text_of
from trial_runner.runner.settings import Settings
from trial_runner.wire import foreign_files

#: Seconds between two looks at a folder that another container may have taken over.
LOOK_S = 5.0
#: Of a registration, which names up to `protocol.MOST_OUTBOXES` outboxes.
_REPORT_BYTES = 1024 * 1024


class Claim:
    """The claim of one container on a folder that the manager reads."""

    def __init__(self, folder: str, container: str) -> None:
        self._folder = folder
        self._container = container

    def make(self, registration: Dict[str, Any]) -> None:
        """Leaves the registration for the manager. Raises OSError."""
        foreign_files.write_whole(self._folder, protocol.RUNNER_FILE, json.dumps(registration).encode(), 0o666)

    def is_lost(self) -> bool:
        """Whether another container has registered since; False when that cannot be read: storage may fail for a
        while."""
        try:
            report = foreign_files.read(self._folder, protocol.RUNNER_FILE, 0, _REPORT_BYTES)
            holder = json.loads(report.decode()).get("container")
        except (OSError, ValueError, AttributeError):
            return False
        return isinstance(holder, str) and holder not in ("", self._container)


class Left(NamedTuple):
    """Files that a container leaves behind: bytes of each outbox and log, and sentences about those it could not
    deliver."""

    container: str
    outboxes: Dict[str, int]
    logs: Dict[str, int]
    undelivered: List[str]


class Evidence(NamedTuple):
    """The evidence of a command's end; one of `exit_code` and `signal` is set."""

    pid: int
    exit_code: Optional[int]
    signal: Optional[int]
    started_ms: int
    ended_ms: int
    #: At most 2048 bytes of standard error, of a command that failed.
    stderr_tail: str

    @classmethod
    def of(cls, folder: str, exit_: Exit, pid: int, started_ms: int) -> "Evidence":
        tail = "" if exit_.exit_code == 0 else _stderr_tail(folder)
        return cls(pid, exit_.exit_code, exit_.signal, started_ms, now_ms(), tail)

    @classmethod
    def not_started(cls, exit_code: int, sentence: str) -> "Evidence":
        """The command never ran; the sentence says why."""
        return cls(0, exit_code, None, now_ms(), now_ms(), sentence[: protocol.MAX_STDERR_TAIL // 4])

    @property
    def exit_code_of_runner(self) -> int:
        return 128 + (self.signal or 0) if self.exit_code is None else self.exit_code

    @property
    def was_started(self) -> bool:
        return self.pid != 0

    def status(self, outboxes: Dict[str, int], undelivered: List[str]) -> Dict[str, Any]:
        """The body of the status post. `outboxes`: bytes that were reported."""
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
        """Makes the exit file, as the keeper does, and says in it what else there is to be read."""
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


def _stderr_tail(folder: str) -> str:
    return text_of(foreign_files.tail(folder, protocol.STDERR_FILE, protocol.MAX_STDERR_TAIL))


def _boot_ms() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)


#: Milliseconds since the epoch when the machine was started, by its clock as this process found it.
_BOOTED_MS = time.time_ns() // 1000000 - _boot_ms()


def now_ms() -> int:
    """Milliseconds since the epoch by this machine's clock as it was when this process began: differences of two
    answers are durations, even when the clock is set."""
    return _BOOTED_MS + _boot_ms()
