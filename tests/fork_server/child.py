"""A fork becomes what was ordered."""

from __future__ import annotations

import asyncio
import atexit
import faulthandler
import fcntl
import gc
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from typing import NoReturn

from tests.fork_server import asyncio_start, named_process, popen
from tests.fork_server.order import Order, has_stand_in, path_with_stand_in, set_limits

#: Exit status of an interpreter whose standard output is gone.
_CANNOT_FLUSH = 120
#: More than any descriptor of the server has.
_ASIDE = 512


def run(order: Order, descriptors: Sequence[int]) -> NoReturn:
    """To the end of the process."""
    try:
        _run(order, descriptors)
        end = SystemExit(None)
    except SystemExit as asked:
        end = asked
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise  # the interpreter ends itself by the signal
        traceback.print_exc()
        end = SystemExit(1)
    _end(end)


def _end(asked: SystemExit) -> NoReturn:
    """As the interpreter does, but for taking all modules apart, which is most of what a short command costs."""
    if asked.code is not None and not isinstance(asked.code, int):
        print(asked.code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    failed = 0
    for file in (sys.stdout, sys.stderr):
        try:
            file.flush()
        except OSError:
            failed = _CANNOT_FLUSH
    code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    os._exit((failed or code) & 0xFF)


def _run(order: Order, descriptors: Sequence[int]) -> None:
    gc.enable()
    _take(descriptors, order.descriptors)
    _open_standard_files()
    _leave_the_server(order)
    _set_environment(order)
    # a command that starts a daemon has it forked, too, and a daemon its tuners
    subprocess.Popen = popen.Popen  # type: ignore[misc]
    asyncio.create_subprocess_exec = asyncio_start.create_subprocess_exec
    _start(order)


def _take(descriptors: Sequence[int], targets: Sequence[int]) -> None:
    """These under those numbers, and no other."""
    first = max(_ASIDE, *targets) + 1
    aside = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, first) for descriptor in descriptors]
    os.closerange(0, first)
    for descriptor, target in zip(aside, targets, strict=True):
        os.dup2(descriptor, target)
        os.close(descriptor)


def _open_standard_files() -> None:
    """Anew: the server's know whether those were pipes or files."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        before = getattr(sys, name)
        file = open(descriptor, mode, encoding=before.encoding, errors=before.errors, closefd=False)
        if name == "stderr":
            file.reconfigure(line_buffering=True)
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def _leave_the_server(order: Order) -> None:
    if order.session:
        os.setsid()
    elif order.group >= 0:
        os.setpgid(0, order.group)
    if order.interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    set_limits(order.limits)
    os.umask(order.umask)
    os.chdir(order.directory)


def _set_environment(order: Order) -> None:
    os.environ.clear()
    os.environ.update(order.environment)
    named_process.name(order.command, order.environment)
    time.tzset()
    tempfile.tempdir = None  # the server's
    if "PYTHONFAULTHANDLER" in order.environment:
        faulthandler.enable()


def _start(order: Order) -> None:
    """As the interpreter starts a script, a module or code."""
    *options, last = order.program
    sys.orig_argv = list(order.command)
    sys.argv = [last, *order.arguments]
    if "-c" in options:
        sys.argv[0], sys.path[0] = "-c", ""
        exec(compile(last, "<string>", "exec"), {"__name__": "__main__"})
        return
    if "-m" not in options:
        sys.path[0] = os.path.dirname(os.path.abspath(last))
        runpy.run_path(last, run_name="__main__")
        return
    sys.path[:1] = [] if "-P" in options else [os.getcwd()]
    if has_stand_in(order.environment):
        sys.path = path_with_stand_in(sys.path)
    if not hasattr(sys.modules.get(last), "__path__"):
        sys.modules.pop(last, None)  # it was imported, and is to be run now
    runpy.run_module(last, run_name="__main__", alter_sys=True)
