"""What a list of jobs makes of the queue and the accounting, which may lag behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from nni_manager.machines.shell import Answer, Shell
from nni_manager.platforms.slurm.cluster import Cluster, Followed

pytestmark = pytest.mark.unit

_JOB = "exp-b"
_IN_QUEUE = f"2|CANCELLED|0|0|2026-11-29T11:00:33|n1|None|{_JOB}\n"
_RECORD = f"2|{_JOB}|{{state}}|0:0|2026-11-29T11:00:32|2026-11-29T11:00:33|2026-11-29T11:02:10|n1\n"


class Told(Shell):
    """A login whose queue and accounting say what the test sets."""

    name = "login"
    queue = _IN_QUEUE
    record = _RECORD.format(state="RUNNING")

    async def run(
        self, command: str, stdin: bytes = b"", limit_s: float = 30.0, variables: Mapping[str, str] | None = None
    ) -> Answer:
        if "squeue" in command:
            text = self.queue
        elif "sacct" in command:
            text = self.record
        else:
            text = "slurm 24.11.5\nAccountingStorageType = accounting_storage/slurmdbd\n"
        return Answer(rc=0, out=text.encode(), err=b"")


def followed(shell: Shell) -> Cluster:
    cluster = Cluster("key", shell, poll_s=5)
    cluster.followed["exp/slurm"] = Followed(names={"2": _JOB})
    return cluster


async def test_cancelled_job_waits_for_the_name_of_its_user() -> None:
    shell = Told()
    cluster = followed(shell)
    assert (await cluster.snapshot()).rows["2"].state == "COMPLETING"
    shell.record = _RECORD.format(state="CANCELLED by 1000")
    row = (await cluster.snapshot(asyncio.get_running_loop().time())).rows["2"]
    assert (row.state, row.by) == ("CANCELLED", "1000")


async def test_cancelled_job_ends_without_the_name_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nni_manager.platforms.slurm.cluster._USER_S", 0.0)
    row = (await followed(Told()).snapshot()).rows["2"]
    assert (row.state, row.by) == ("CANCELLED", "")


async def test_missing_exit_code_is_awaited_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounting before Slurm 25.11 writes exit code 128 as 0, and never corrects it."""
    shell = Told()
    shell.queue, shell.record = "", _RECORD.format(state="FAILED")
    cluster = followed(shell)
    snapshot = await cluster.snapshot()
    assert (dict(snapshot.rows), snapshot.missing) == ({}, frozenset())
    monkeypatch.setattr("nni_manager.platforms.slurm.cluster._CODE_S", 0.0)
    assert (await cluster.snapshot(asyncio.get_running_loop().time())).rows["2"].state == "FAILED"
