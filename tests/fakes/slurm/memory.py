"""How a cluster keeps jobs within their memory: it reads their memory at intervals, or the kernel limits cgroups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

POLL, CGROUP = "poll", "cgroup"
_HIERARCHIES = tuple(Path("/sys/fs/cgroup", name) for name in ("memory", "freezer"))


def missing(memory: str) -> str:
    """Why memory cannot be limited this way here; empty: it can."""
    if memory == POLL:
        return ""
    for hierarchy in _HIERARCHIES:
        probe = hierarchy / f"nni-manager-probe-{os.getpid()}"
        try:
            probe.mkdir()
            probe.rmdir()
        except OSError as error:
            return f"Slurm: no memory limit by cgroup, as {hierarchy} is not a writable hierarchy of cgroup v1: {error}"
        if not (hierarchy / "cgroup.clone_children").exists():
            return f"Slurm: no memory limit by cgroup, as {hierarchy} is not a hierarchy of cgroup v1"
    return ""


def slurm_lines(memory: str) -> Iterator[str]:
    """Lines of `slurm.conf`."""
    by = "cgroup" if memory == CGROUP else "linuxproc"
    yield f"ProctrackType=proctrack/{by}"
    yield f"TaskPlugin=task/{'cgroup' if memory == CGROUP else 'none'}"
    yield "JobAcctGatherType=jobacct_gather/linux"
    yield "JobAcctGatherFrequency=task=1"
    if memory == POLL:
        yield "JobAcctGatherParams=OverMemoryKill"


def cgroup_conf(memory: str) -> str:
    """`cgroup.conf`."""
    if memory == POLL:
        return ""
    lines = ("CgroupPlugin=cgroup/v1", "CgroupMountpoint=/sys/fs/cgroup", "ConstrainRAMSpace=yes", "ConstrainCores=no")
    return "".join(f"{line}\n" for line in lines)


def remove_groups(first_job: int) -> None:
    """Removes the cgroups that jobs from this id on left when their node lost power."""
    for hierarchy in _HIERARCHIES:
        for group in hierarchy.glob("slurm*/uid_*/job_*"):
            number = group.name.removeprefix("job_")
            if number.isdigit() and first_job <= int(number) < first_job + MOST_JOBS:
                for below in (*sorted(group.rglob("*"), reverse=True), group):
                    if below.is_dir():
                        _remove_empty(below)
        for group in (*hierarchy.glob("slurm*/uid_*"), *hierarchy.glob("slurm*")):
            _remove_empty(group)


def _remove_empty(group: Path) -> None:
    with suppress(OSError):
        group.rmdir()


#: Number of job ids of a cluster. Clusters that run at a time share the hierarchies, and must not share ids.
MOST_JOBS = 1000
