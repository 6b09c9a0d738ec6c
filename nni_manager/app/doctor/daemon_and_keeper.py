"""Checks the daemon of the data directory (running, responding, same version) and the keeper.

Starts a temporary keeper, asks it for the machine's resources and ends it. A keeper with jobs must answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from nni_manager import __version__
from nni_manager.app.doctor.finding import CheckFinding, failure, ok, warning
from nni_manager.client import address
from nni_manager.client.data_directory import LOCK
from nni_manager.client.manager_client import ManagerClient
from nni_manager.config.settings import TEMPORARY
from nni_manager.domain.errors import NniManagerError, PlatformError
from nni_manager.domain.experiment import HoldCode
from nni_manager.machines.keeper.client import Listener
from nni_manager.machines.keeper.local_process import LocalKeeper, connected
from nni_manager.platform_kit.lock_holder import lock_holder
from trial_runner import protocol
from trial_runner.wire import removal

_DAEMON = "daemon"


def look_at_daemon(data_dir: Path) -> Iterator[CheckFinding]:
    holder = lock_holder(data_dir / LOCK)
    found = address.find(data_dir)
    if found is not None:
        yield _ask(ManagerClient(found))
    elif holder:
        sentence = f"process {holder} owns {data_dir} but is unreachable"
        yield failure(_DAEMON, sentence, "if it is starting, wait; else end that process and try again")
    elif address.read_pointer(data_dir) is not None:
        advice = "start it again; it continues the trials that kept running"
        yield warning(_DAEMON, "the last daemon was killed or crashed, and none runs now", advice)
    else:
        yield ok(_DAEMON, "none runs; `nnictl create` starts one")


def open_ports(data_dir: Path) -> dict[int, str]:
    """TCP port → kind of listener, of the running daemon; empty when none runs or answers."""
    found = address.find(data_dir)
    if found is None:
        return {}
    try:
        listeners = ManagerClient(found).daemon()["listeners"]
    except NniManagerError:
        return {}
    return {int(d["address"].rpartition(":")[2]): str(d["kind"]) for d in listeners if d["kind"] != "control"}


def _ask(client: ManagerClient) -> CheckFinding:
    try:
        known = client.daemon()
    except NniManagerError as error:
        return failure(_DAEMON, f"the daemon does not respond: {error}", "see its log, or end it and try again")
    count = known["experiments"]
    all_known = f"{count} experiment{'' if count == 1 else 's'}, including closed ones"
    sentence = f"process {known['pid']} runs version {known['version']} and knows {all_known}"
    if known["version"] != __version__:
        return warning(_DAEMON, f"{sentence}; this command is {__version__}", "restart it; trials keep running")
    return ok(_DAEMON, sentence)


#: Seconds for a temporary keeper to start and answer; seconds to end.
_ANSWER_S, _END_S = 30.0, 5.0
#: Seconds for a keeper at work to answer.
_ANSWER_AT_WORK_S = 5.0


def look_at_keeper(data_dir: Path) -> Iterator[CheckFinding]:
    folder = Path(tempfile.mkdtemp(prefix="nni-doctor-", dir=TEMPORARY))  # short: paths of sockets are
    try:
        yield _try(folder)
    finally:
        removal.remove(str(folder))
    yield from _at_work(data_dir)


def _try(folder: Path) -> CheckFinding:
    try:
        facts = asyncio.run(_facts(folder))
    except (PlatformError, OSError, TimeoutError) as error:
        sentence = f"it cannot be started, so trials cannot run on this machine: {error or 'no answer in time'}"
        return failure("keeper", sentence, "see its message; Linux of 2019 or newer is required")
    if (pid := lock_holder(folder / "keeper.lock")) is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return warning("keeper", f"it responds, but did not end within {_END_S:g} s", "please report it")
    memory = facts.get("memory_bytes")
    shown = f"{memory / 2**30:.1f} GiB of memory" if memory else "memory unknown"
    machine = f"{facts['cpu_count']} processors, {shown}, load {facts['load'][0]:.1f}"
    return ok("keeper", f"it starts, responds and ends: {machine}")


async def _facts(folder: Path) -> dict[str, Any]:
    process = LocalKeeper(folder, folder / "keeper.sock")
    async with connected(process, "doctor's") as keeper:
        try:
            async with asyncio.timeout(_ANSWER_S):
                await keeper.listen("doctor", Listener())
                facts: dict[str, Any] = await keeper.request("facts")
        finally:
            keeper.leave("doctor")
            await process.ended(_END_S)
    return facts


def _at_work(data_dir: Path) -> Iterator[CheckFinding]:
    """Findings on the data directory's keeper. A running daemon checks the keeper itself and reports it as a hold."""
    lock = data_dir / "keeper" / "keeper.lock"
    pid = lock_holder(lock)
    if pid is None:
        return
    if lock_holder(data_dir / LOCK) is not None:
        yield from _holds(data_dir)
    elif not _answers(lock):
        sentence = f"process {pid}, the keeper of trials on this machine, does not respond"
        yield failure("trials", sentence, f"see {lock.with_name('keeper.log')}; if you kill it, another one takes over")
    else:
        sentence = f"process {pid} keeps trials running, but no daemon stores their results"
        yield warning("trials", sentence, "start the daemon; it continues them")


def _holds(data_dir: Path) -> Iterator[CheckFinding]:
    found = address.find(data_dir)
    with suppress(NniManagerError):  # another check reports an unresponsive daemon
        for experiment in ManagerClient(found).experiments() if found is not None else ():
            hold = experiment["hold"]
            if hold and hold["code"] == HoldCode.PLATFORM_UNAVAILABLE:
                yield failure("trials", f"experiment {experiment['id']}: {hold['sentence']}", "see its message")


def _answers(lock: Path) -> bool:
    """Whether the keeper answers a request. A hanging keeper still accepts connections."""
    try:
        path = lock.read_text(encoding="utf-8", errors="surrogateescape").splitlines()[1]
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_ANSWER_AT_WORK_S)
            asking.connect(path)
            asking.sendall(protocol.encode({"id": 1, "verb": "hello"}))
            return bool(asking.recv(1))
    except (OSError, IndexError):
        return False
