"""`python -m tests.fakes.kubernetes.kubelet.fork_server`: trial runners without an interpreter start each.

Each line of JSON on standard input (`number`, `environment`, `folder`, `log`) forks a process that does the same as
``python3 runner.pyz`` with that environment. This process has already imported `trial_runner`. Lines on standard output
contain its `pid`, and later its `code`. The end of the input ends all processes.
"""

from __future__ import annotations

import gc
import http.client  # noqa: F401  with its first post a runner imports this, the next and that of `ssl`: here once for all
import json
import os
import select
import signal
import ssl  # noqa: F401
import sys
import traceback
import urllib.parse  # noqa: F401
from collections.abc import Mapping
from typing import Any

from trial_runner.__main__ import main as run_trial

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def main() -> None:
    gc.freeze()  # shared memory stays shared with the forks
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, int] = {}
    rest = b""
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            _reap(children)
        if 0 in ready:
            data = os.read(0, 1 << 20)
            if not data:
                return _end(children)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                pid = _fork(asked)
                children[pid] = asked["number"]
                _say(number=asked["number"], pid=pid)


def _fork(asked: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _become(asked)
            code = run_trial()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def _become(asked: Mapping[str, Any]) -> None:
    """Fork a process with its own session, without the server's state."""
    signal.set_wakeup_fd(-1)
    for number in _PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    log, nothing = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.closerange(3, 64)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = ["runner.pyz"]


def _reap(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        _say(number=children.pop(pid), code=code if code >= 0 else 128 - code)


def _end(children: dict[int, int]) -> None:
    for pid in children:
        os.killpg(pid, signal.SIGKILL)
    for pid in list(children):
        os.waitpid(pid, 0)


def _say(**words: int) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


if __name__ == "__main__":
    main()
