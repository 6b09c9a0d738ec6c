"""What `sbatch` gets for an attempt: its options and its script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from nni_manager.domain.job import JobSpec
from nni_manager.platforms.slurm.config import SlurmConfig

#: File of an attempt's folder for what Slurm and the script print on stderr.
ERROR_FILE = "slurm.err"
#: Seconds before its time limit, and before a preemption where the cluster sends signals, when the runner is told.
_NOTICE_S = 60
_NONCE = 8
_NAME = re.compile(r"nni_exp_(?P<experiment>[A-Za-z0-9_-]+)_trial_(?P<trial>[A-Za-z0-9]+)(-[0-9]+)?(-n[a-z0-9]+)?")


def name_of(spec: JobSpec) -> str:
    """The name of an attempt's job: with the experiment's nonce, as names are not unique on Slurm."""
    nonce = re.sub(r"[^a-z0-9]", "", spec.nonce.lower())[:_NONCE]
    return f"{spec.name}-n{nonce}" if nonce else spec.name


def is_of(name: str, job_name: str) -> bool:
    """Whether a name on Slurm is that of our job, with any nonce."""
    return re.fullmatch(rf"{re.escape(job_name)}(-n[a-z0-9]{{1,{_NONCE}}})?", name) is not None


def experiment_of(name: str) -> str:
    """The experiment of a job's name on Slurm; empty: it is not of a manager."""
    found = _NAME.fullmatch(name)
    return found["experiment"] if found else ""


def options(config: SlurmConfig, gpu_number: int | None) -> Iterator[str]:
    """The options of the section, for jobs and for a test of them."""
    given = {
        "partition": config.partition,
        "account": config.account,
        "qos": config.qos,
        "time": config.time_limit,
        "cpus-per-task": config.trial_cpu_number,
        "mem": f"{config.trial_memory_size}M" if config.trial_memory_size else None,
        "nodes": config.node_number,
        "constraint": config.constraint,
        "exclude": config.exclude,
    }
    yield from (f"--{name}={value}" for name, value in given.items() if value is not None)
    if gpu_number:
        kind = f"{config.gpu_type}:" if config.gpu_type else ""
        yield f"--gres=gpu:{kind}{gpu_number}"
    yield from config.options


def arguments(config: SlurmConfig, spec: JobSpec, folder: str) -> list[str]:
    """The arguments of `sbatch`. `folder`: of the attempt, on the cluster."""
    return [
        f"--job-name={name_of(spec)}",
        f"--chdir={folder}",
        "--output=/dev/null",
        f"--error={folder}/{ERROR_FILE}",
        "--open-mode=append",
        "--no-requeue",
        f"--signal=B:USR1@{_NOTICE_S}",
        "--export=ALL",
        *options(config, spec.gpu_number),
    ]


def script(config: SlurmConfig, start: str, folder: str) -> str:
    """The batch script. `start`: the command of `MountedStorage`, replaces the shell; `folder`: the shared one."""
    if config.container is None:
        command = start
    else:
        nv = "--nv " if config.trial_gpu_number else ""
        image, bind = shlex.quote(config.container), shlex.quote(folder)
        # the node's own TMPDIR is often a folder of the job, which the container does not have
        inside = f'[ -d "${{TMPDIR:-/tmp}}" ] || unset TMPDIR; {start}'
        # older installations have its former name alone
        program = "$(command -v apptainer || echo singularity)"
        command = f"exec {program} exec {nv}--bind {bind} {image} /bin/sh -c {shlex.quote(inside)}"
    # until the runner hears USR1, which may come at once, its default action would end the job
    return f"#!/bin/bash\ntrap '' USR1\n{config.prologue or ''}\n{command}\n"
