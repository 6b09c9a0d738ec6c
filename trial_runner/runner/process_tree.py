"""The user's command and everything it starts, to the last of them.

A runner has one command and is the subreaper (in most containers also process 1), so whatever is below it belongs to
the command, wherever it went and whatever it did to its environment. No descriptors of processes are used: clusters
have kernels without them. Where a container has no `/proc`, descendants cannot be found: then it is the command's
process group, or, for process 1, all processes.
"""

import os
import signal
import time
from typing import Callable, Dict, List, Optional

from trial_runner import processes
from trial_runner.launch import Streams, launch
from trial_runner.loop import Loop, Timer
from trial_runner.processes import Exit
from trial_runner.wire import foreign_files

#: Seconds until processes that were killed are looked for again; usually SIGCHLD comes before.
_LOOK_AGAIN_S = 0.1
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class ProcessTree:
    """`on_end` is called once, when nothing of the command is left."""

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
            self.main_pid = launch(command, directory, environment, Streams(*descriptors))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def terminate(self, number: int, grace_s: float) -> None:
        """Sends a signal to all, and SIGKILL to the rest after `grace_s` seconds; the shortest of calls counts."""
        kill_at = time.monotonic() + grace_s
        if self._is_over or (self._kill_timer is not None and self._kill_at <= kill_at):
            return
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        elif grace_s > 0:
            self._signal(number)
        self._kill_at = kill_at
        self._kill_timer = self._loop.call_later(grace_s, self.look)

    def look(self) -> None:
        """Looks at all processes; to be called when a child has ended."""
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
        # The main process first: a shell that outlives its child would begin the next command.
        for pid in self._living():
            processes.send_signal(pid, number)

    def _has_living(self) -> bool:
        """Whether processes are left, of those that can be found."""
        can_be_reached = os.getpid() == 1 or processes.are_shown()
        return processes.has_children() and (can_be_reached or processes.has_group(self.main_pid))

    def _living(self) -> List[int]:
        pids = processes.with_descendants(processes.children(os.getpid()))
        return sorted(pids, key=lambda pid: pid != self.main_pid)

    def _reap(self) -> None:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
            while pid:
                if pid == self.main_pid:
                    self._exit = processes.exit_of(status)
                pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pass  # none is left

    def _finish(self, exit_: Exit) -> None:
        self._is_over = True
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._on_end(exit_)


def _open_output(path: str) -> int:
    descriptor = foreign_files.open_file(*os.path.split(path), flags=_APPENDING, mode=0o666)
    os.set_blocking(descriptor, True)  # the command inherits it
    return descriptor
