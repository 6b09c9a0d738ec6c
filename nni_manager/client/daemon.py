"""Finds the daemon of a data directory, and starts it if none runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nni_manager.client.address import POINTER_FILE, Address, find, read_pointer
from nni_manager.client.daemon_log import LOG_FILE, put_aside
from nni_manager.client.data_directory import LOCK, is_taken, lost_service, make_data_directory, open_lock
from nni_manager.domain.errors import Ending, InvalidInput, NniManagerError
from nni_manager.platform_kit.lock_holder import holders
from trial_runner.wire.descriptors import try_lock
from trial_runner.wire.shortage import tried_again

#: Lock in the data directory, held by the command that starts the daemon.
START_LOCK = "start.lock"
#: Seconds to wait for another command that starts the daemon; seconds after which a sentence says so.
_LOCK_PATIENCE_S, _TELL_AFTER_S = 60.0, 2.0
#: Seconds to wait for a daemon that runs and cannot be reached; it checks its own socket every two.
_LOST_S = 4.0
_LOOK_S = 0.1


class _KilledAtStart(NniManagerError):
    """A signal ended the daemon before it was ready."""


def reach(data_dir: Path) -> Address:
    """The address of the daemon, which is started if none runs. Raises NniManagerError if it does not start."""
    address = find(data_dir)
    if address is not None:
        return address
    with _starting(data_dir):
        return find(data_dir) or _started(data_dir)


def reach_again(data_dir: Path, error: NniManagerError) -> Address:
    """The address of the next daemon after one that has ended, or is about to (`error` is Ending).

    Raises the exceptions of `reach`.
    """
    if not isinstance(error, Ending):
        return reach(data_dir)
    ending = read_pointer(data_dir)
    with _starting(data_dir):
        address = find(data_dir)
        is_next = address is not None and read_pointer(data_dir) != ending  # another command has started it
        return address if address is not None and is_next else _started(data_dir)


def has_nothing(data_dir: Path) -> bool:
    """Whether no daemon ever used a data directory, and it contains no experiment's folder.

    False if the directory is unreadable; starting a daemon there then reports the reason.
    """
    try:
        names = os.listdir(data_dir)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return LOCK not in names and POINTER_FILE not in names and not any(data_dir.glob("*/db"))


def find_running(data_dir: Path) -> Address | None:
    """The address of the daemon, or None if none runs. Raises NniManagerError if it is unreachable."""
    address = find(data_dir)
    if address is None and is_taken(data_dir):
        raise NniManagerError(f"the daemon of {data_dir} is running but unreachable; see {data_dir / LOG_FILE}")
    return address


def is_running(data_dir: Path) -> bool:
    """Whether a daemon of the data directory answers, or holds its lock."""
    return find(data_dir) is not None or is_taken(data_dir)


def start(data_dir: Path, command: Sequence[str]) -> None:
    """Run `command` in the background, with ``--ready-fd N`` added, and return when the daemon is ready.

    The daemon writes the line ``ready`` to that descriptor, or ``error: <sentence>``. Raises NniManagerError with that
    message, or if the daemon ends without either line.
    """
    reader, writer = os.pipe()
    with open(reader, encoding="utf-8", errors="replace") as lines:
        try:
            process = _spawn([*command, "--ready-fd", str(writer)], data_dir, writer)
        finally:
            os.close(writer)  # so that the end of the process ends `lines`
        word = lines.readline().strip()
    if word != "ready":
        raise _failure(word, process, data_dir)
    process.returncode = 0  # the daemon keeps running; prevents a warning at exit about an unawaited child


def _started(data_dir: Path) -> Address:
    try:
        start(data_dir, _command(data_dir))
    except _KilledAtStart:  # the signal was probably not meant for the next attempt
        start(data_dir, _command(data_dir))
    except NniManagerError:
        if (lost := _found_again(data_dir)) is None:
            raise
        return lost
    if sentence := lost_service(data_dir):
        print(f"warning: {sentence}", file=sys.stderr)
    if (address := find(data_dir)) is None:
        raise NniManagerError(f"the daemon started and ended at once; see {data_dir / LOG_FILE}")
    return address


def _found_again(data_dir: Path) -> Address | None:
    """The address of a daemon that was unreachable, or None if none runs or it stays unreachable.

    The daemon restores a removed socket, for example after a logout, within seconds.
    """
    deadline = time.monotonic() + _LOST_S
    while (address := find(data_dir)) is None and time.monotonic() < deadline and is_taken(data_dir):
        time.sleep(_LOOK_S)
    return address


def _command(data_dir: Path) -> list[str]:
    # -P: a file in the current folder must not shadow a module of the same name
    serve = [sys.executable, "-P", "-m", "nni_manager", "serve", "--auto"]
    return [*serve, "--data-dir", str(data_dir)]


def _spawn(command: Sequence[str], data_dir: Path, writer: int) -> subprocess.Popen[bytes]:
    put_aside(data_dir / LOG_FILE)  # a daemon that is ending keeps writing to its own log
    with open(data_dir / LOG_FILE, "ab") as log:
        return tried_again(
            lambda: subprocess.Popen(
                command,
                cwd=data_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                start_new_session=True,
            )
        )


def _failure(word: str, process: subprocess.Popen[bytes], data_dir: Path) -> NniManagerError:
    code = process.wait()
    if word.startswith("error: "):
        return NniManagerError(word.removeprefix("error: "))
    if code < 0:
        return _KilledAtStart(f"the daemon was killed by signal {-code} before it was ready; see {data_dir / LOG_FILE}")
    return NniManagerError(f"the daemon ended with exit code {code} before it was ready; see {data_dir / LOG_FILE}")


@contextmanager
def _starting(data_dir: Path) -> Iterator[None]:
    """Hold the start lock; commands that wait for it find the daemon running afterwards.

    Raises InvalidInput for an unusable data directory.
    """
    try:
        make_data_directory(data_dir)
        lock = open_lock(data_dir / START_LOCK)
    except OSError as error:
        raise InvalidInput(f"the data directory {data_dir} cannot be used ({error.strerror}); see --data-dir") from None
    with lock:
        _wait_for(lock, data_dir / START_LOCK)
        yield


def _wait_for(lock: BinaryIO, path: Path) -> None:
    """Take the lock. After `_LOCK_PATIENCE_S`, raises NniManagerError that names the holding process."""
    began, told = time.monotonic(), False
    while not try_lock(lock.fileno()):
        waited_s = time.monotonic() - began
        if waited_s > _LOCK_PATIENCE_S:
            raise NniManagerError(
                f"{_holder(path)} has held {path} for more than {_LOCK_PATIENCE_S:.0f} s, so no other process can start"
                " the daemon; end that process, then try again"
            )
        if waited_s > _TELL_AFTER_S and not told:
            told = True
            print(f"waiting for {_holder(path)}, which is starting the daemon or holds {path}", file=sys.stderr)
        time.sleep(_LOOK_S)


def _holder(path: Path) -> str:
    return ", ".join(map(str, holders(path))) or "another process"
