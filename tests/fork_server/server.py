"""`python -m tests.fork_server.server N SOCKET`: forks itself for each order that comes in on listening descriptor N.

It answers the pid, and later the exit status as `waitpid` has it. It ends with its standard input; what it has forked
lives on.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import select
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from tests.fork_server import child, named_process, popen
from tests.fork_server.order import FAKES, TUNER, Order, receive

_OF_DAEMON = "api app cli client code_archive config kubernetes machines platforms shared_storage web web_services"
#: Imported with all of their modules: what daemon, commands and keeper import at once, and later.
_PACKAGES = (*(f"nni_manager.{name}" for name in _OF_DAEMON.split()), "trial_runner.keeper")
#: What they import only when it is needed.
_LATER = ("aiohttp", "asyncssh", "kubernetes_asyncio.client", "prometheus_client")
#: What a tuner imports when it is made, of those that need no numerical library to begin with.
_TUNERS = ("random", "grid", "batch", "anneal", "evolution", "optuna_tpe", "hyperband")
#: Numerical libraries, which no daemon has.
_NEVER = "numpy"


@dataclass(frozen=True)
class _Here:
    """For what is forked: a command that starts a daemon."""

    path: str
    environment: Mapping[str, str]


def main(listening: int, path: str) -> None:
    popen.use(_Here(path, dict(os.environ)))
    import_all()
    named_process.name(sys.orig_argv, os.environ)  # it fails here, and not in a fork
    forked = serve(socket.socket(fileno=listening))
    if forked is not None:
        child.run(*forked)


def import_all() -> None:
    """What forks have from the beginning."""
    gc.disable()
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    tuners = (f"nni_manager.tuners.{name}" for name in _TUNERS)
    for name in (*_LATER, TUNER, *tuners, *(f"{fake}.__main__" for fake in FAKES)):
        importlib.import_module(name)
    assert _NEVER not in sys.modules, f"{_NEVER} was imported"
    assert len(os.listdir("/proc/self/task")) == 1, "threads do not come along into a fork"
    gc.collect()
    gc.freeze()  # what is shared with the forks stays shared


def serve(listener: socket.socket) -> tuple[Order, list[int]] | None:
    """In a fork: what it has to do. In the server: None, in the end."""
    waiting: dict[int, tuple[int, socket.socket]] = {}
    look = select.poll()
    for descriptor in (sys.stdin.fileno(), listener.fileno()):
        look.register(descriptor, select.POLLIN)
    while True:
        for ready, _ in look.poll():
            if ready == sys.stdin.fileno():
                return None
            if ready in waiting:
                look.unregister(ready)
                _tell_end(ready, *waiting.pop(ready))
                continue
            client, _ = listener.accept()
            try:
                order, descriptors = receive(client)
            except ValueError:
                client.close()
                continue
            if (pid := os.fork()) == 0:
                for each in (listener, client, *(other for _, other in waiting.values())):
                    each.detach()  # or its end would close what has its number by then
                return order, descriptors
            for descriptor in descriptors:
                os.close(descriptor)
            _tell(client, pid)
            process = os.pidfd_open(pid)
            look.register(process, select.POLLIN)
            waiting[process] = pid, client


def _tell(client: socket.socket, number: int) -> None:
    with suppress(OSError):  # it has ended
        client.send(struct.pack("q", number))


def _tell_end(process: int, pid: int, client: socket.socket) -> None:
    os.close(process)
    _, status = os.waitpid(pid, 0)
    with client:
        _tell(client, status)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
