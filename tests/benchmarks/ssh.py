"""Trials on SSH machines, compared with the same command through plain asyncssh on the same machines in one run.

    python -m tests.benchmarks.ssh        # 200 trials of 0.1 s over three sshds on loopback

The floor has one connection per machine, one channel per trial, and the same concurrency. Both write one result; only
ours is stored.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncssh
import psutil

from tests.live_daemon import Daemon, end_all, running_daemon
from tests.platforms.remote.ssh_machines import RealMachine

TRIALS = 200
AT_A_TIME = 12
COMMAND = 'sleep 0.1; echo \'{"type": "final", "value": 1}\' >> "${NNI_OUTBOX:-/dev/null}"'
_SETTINGS = ("MaxSessions 100", "MaxStartups 100")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        machines = [RealMachine(Path(folder) / f"machine{number}", _SETTINGS) for number in range(3)]
        for machine in machines:
            asyncio.run(machine.start())
        try:
            floor_s = asyncio.run(bare(machines))
            with running_daemon(_made(Path(folder) / "daemon")) as daemon:
                ours_s, cpu_ms = ours(daemon, machines, _made(Path(folder) / "code"))
        finally:
            for machine in machines:
                asyncio.run(machine.stop())
                end_all(str(machine.home))
    print(f"bare asyncssh  {TRIALS / floor_s:6.1f} trials/s")
    print(f"ours           {TRIALS / ours_s:6.1f} trials/s, {floor_s / ours_s:.2f} x (bar: 0.5)")
    print(f"daemon's CPU   {cpu_ms:6.1f} ms a trial (bar: 10)")
    sys.exit(0 if floor_s / ours_s >= 0.5 and cpu_ms <= 10 else 1)


async def bare(machines: list[RealMachine]) -> float:
    """Seconds."""
    connections = [await _connect(machine) for machine in machines]
    turns, slots = itertools.cycle(connections), asyncio.Semaphore(AT_A_TIME)

    async def trial() -> None:
        async with slots:
            await next(turns).run(COMMAND, check=True)

    begun = time.monotonic()
    await asyncio.gather(*(trial() for _ in range(TRIALS)))
    passed_s = time.monotonic() - begun
    for connection in connections:
        connection.close()
        await connection.wait_closed()
    return passed_s


async def _connect(machine: RealMachine) -> asyncssh.SSHClientConnection:
    return await asyncssh.connect(
        "127.0.0.1",
        machine.port,
        known_hosts=None,
        client_keys=[str(machine.key_file)],
        username=machine.user,
        config=None,
    )


def ours(daemon: Daemon, machines: list[RealMachine], code: Path) -> tuple[float, float]:
    """Seconds from the first trial's start to the last one's end; milliseconds of the daemon's processor a trial."""
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    warm = daemon.create(_config(machines, 12), code)
    daemon.wait(warm, "DONE")
    before = process.cpu_times()
    id_ = daemon.create(_config(machines, TRIALS), code)
    daemon.wait(id_, "DONE", timeout_s=120)
    after = process.cpu_times()
    [(begun_ms, ended_ms)] = daemon.rows(id_, "SELECT min(intended_ms), max(ended_ms) FROM attempts")
    assert daemon.rows(id_, "SELECT count(*) FROM trials WHERE status = 'SUCCEEDED'") == [(TRIALS,)]
    cpu_s = after.user + after.system - before.user - before.system
    return (ended_ms - begun_ms) / 1000, cpu_s * 1000 / TRIALS


def _config(machines: list[RealMachine], trials: int) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": COMMAND,
        "trialCodeDirectory": ".",
        "trialConcurrency": AT_A_TIME,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "remote", "machineList": [machine.entry() for machine in machines]},
    }


def _made(folder: Path) -> Path:
    os.makedirs(folder)
    return folder


if __name__ == "__main__":
    main()
