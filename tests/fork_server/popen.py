"""`subprocess.Popen` for what the server forks."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tests.fork_server.order import Order, command_of, is_like, own_limits, own_umask, send

#: Group, groups and user of a process that gets its parent's.
_SAME_USER = (None, None, None)
_NUMBER = struct.Struct("q")


class Server(Protocol):
    """`environment`: in which it was started."""

    environment: Mapping[str, str]

    @property
    def path(self) -> str:
        """Of the socket where it listens."""


#: None: all starts are true ones.
_server: Server | None = None


def use(server: Server | None) -> None:
    """From now on, in this process."""
    global _server
    _server = server


def forked_command(words: Any, environment: Mapping[str, str]) -> tuple[list[str], list[str]] | None:
    """Command line and program of what the server can fork; None: it is started truly."""
    return command_of(words) if _server and is_like(environment, _server.environment) else None


def take_interrupts() -> None:
    """For `preexec_fn`: a shell's background jobs ignore SIGINT, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Popen(subprocess.Popen[Any]):
    """Forked where that can be; elsewhere a `subprocess.Popen`."""

    #: The server's end of it tells the exit status.
    _teller: socket.socket | None = None

    def _execute_child(
        self,
        args: Any,
        executable: Any,
        preexec_fn: Any,
        close_fds: bool,
        pass_fds: Any,
        cwd: Any,
        env: Any,
        *rest: Any,
    ) -> None:
        _, _, shell, *pipes, _, gid, gids, uid, umask, session, group = rest
        environment = dict(os.environ if env is None else env)
        is_plain = not (
            shell or executable or preexec_fn not in (None, take_interrupts) or (gid, gids, uid) != _SAME_USER
        )
        found = forked_command(args, environment) if is_plain else None
        if found is None:
            super()._execute_child(  # type: ignore[misc]
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest
            )
            return
        order = Order(
            *found,
            directory=os.path.abspath(cwd or os.curdir),
            environment=environment,
            descriptors=[0, 1, 2, *pass_fds],
            limits=own_limits(),
            umask=own_umask() if umask < 0 else umask,
            session=session,
            group=group,
            interrupts=preexec_fn is take_interrupts,
        )
        standard = [given if given >= 0 else own for own, given in enumerate((pipes[0], pipes[3], pipes[5]))]
        self._fork(order, [*standard, *pass_fds])
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _fork(self, order: Order, descriptors: Sequence[int]) -> None:
        assert _server is not None
        teller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        teller.connect(_server.path)
        send(teller, order, descriptors)
        self.pid = _NUMBER.unpack(teller.recv(_NUMBER.size))[0]
        self._child_created = True
        self._teller = teller

    def end_teller(self) -> socket.socket:
        """Of what was forked: it can be read from when that has ended. The caller closes it."""
        assert self._teller is not None
        return self._teller.dup()

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """As `os.waitpid`: pid and status, or (0, 0) where it lives and `wait_flags` says not to wait."""
        if self._teller is None or self._teller.fileno() < 0:  # closed: both are garbage of a test that failed
            return super()._try_wait(wait_flags)  # type: ignore[misc,no-any-return]
        if wait_flags & os.WNOHANG and not select.select([self._teller], [], [], 0)[0]:
            return 0, 0
        told = self._teller.recv(_NUMBER.size)
        assert told, "the fork server has ended"
        self._teller.close()
        return self.pid, _NUMBER.unpack(told)[0]

    def _internal_poll(self, *late: Any, **places: Any) -> int | None:
        if self._teller is None:
            return super()._internal_poll(*late, **places)  # type: ignore[misc,no-any-return]
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def __del__(self) -> None:
        super().__del__()  # type: ignore[misc]
        if self._teller is not None and self.returncode is not None:  # it may be said to have ended, and live on
            self._teller.close()
