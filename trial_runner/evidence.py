"""How the command ended: told to the manager, and kept in the attempt's folder."""

import json
import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from trial_runner import protocol
from trial_runner.log_forward import text_of
from trial_runner.processes import Exit
from trial_runner.settings import Settings
from trial_runner.whole_file import write_file


class Evidence(NamedTuple):
    """Of `exit_code` and `signal` one is set."""

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

    def write(self, settings: Settings, undelivered: List[str], say: Callable[[str], None]) -> None:
        """Makes the exit file, as the keeper does, and says in it what was not delivered."""
        content = {
            "name": settings.job_name,
            "pid": self.pid,
            "state": protocol.ENDED,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "started_ms": self.started_ms,
            "ended_ms": self.ended_ms,
            "undelivered": undelivered,
        }
        try:
            write_file(os.path.join(settings.system_dir, protocol.EXIT_FILE), json.dumps(content).encode(), 0o666)
        except OSError as error:
            say("The exit file cannot be written: {}".format(error))


def _stderr_tail(folder: str) -> str:
    try:
        with open(os.path.join(folder, protocol.STDERR_FILE), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - protocol.MAX_STDERR_TAIL))
            return text_of(file.read(protocol.MAX_STDERR_TAIL))
    except OSError:
        return ""


def now_ms() -> int:
    """By this machine's clock."""
    return time.time_ns() // 1000000
