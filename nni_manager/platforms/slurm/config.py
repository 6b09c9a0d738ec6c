"""The config section of `slurm`. Values arrive canonical, see `platform_kit.section_model`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from nni_manager.domain.experiment import Json
from nni_manager.machines.ssh.login_section import LoginFields
from nni_manager.platform_kit.section_model import PlatformSection, Remark, marked

#: One value of an option of `sbatch`.
_WORD = r"^[^\s\x00-\x1f]+$"
_TIME = r"^(\d+|\d+:\d{1,2}|\d+:\d{1,2}:\d{1,2}|\d+-\d{1,2}(:\d{1,2}){0,2})$"


class SlurmConfig(PlatformSection):
    """The fields of ``trainingService: {platform: slurm, …}``."""

    platform: Literal["slurm"] = Field(default="slurm", description="Always `slurm`.")
    login: LoginFields | None = Field(
        default=None,
        description="Login node of the cluster, reached by SSH. Default: the manager runs on one, and calls `sbatch`"
        " itself.",
    )
    partition: str | None = Field(default=None, pattern=_WORD, description="Partition. Default: the cluster's.")
    account: str | None = Field(default=None, pattern=_WORD, description="Account. Default: the user's.")
    qos: str | None = Field(default=None, pattern=_WORD, description="Quality of service. Default: the account's.")
    time_limit: str | None = Field(
        default=None,
        pattern=_TIME,
        description="Time limit of a job in Slurm's notation: minutes, `2:00:00` or `1-12`. Default: the partition's.",
    )
    trial_cpu_number: int | None = Field(default=None, gt=0, description="CPUs of a trial. Default: the partition's.")
    trial_memory_size: int | None = marked(
        "Memory of a trial on each node, such as `8GB`. Stored in MB. Default: the partition's.",
        default=None,
        gt=0,
        format="memory",
    )
    gpu_type: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="Type of the GPUs of a trial, such as `a100`, with `trialGpuNumber`.",
    )
    node_number: int | None = Field(
        default=None,
        gt=0,
        description="Nodes of a trial. Its command runs on the first one, and starts others with `srun`. Default: 1.",
    )
    constraint: str | None = Field(default=None, pattern=_WORD, description="Features that nodes must have.")
    exclude: str | None = Field(default=None, pattern=_WORD, description="Nodes that jobs must not use.")
    prologue: str | None = marked(
        "Shell text that runs before each trial, such as `module load python`.",
        default=None,
        opaque=True,
        min_length=1,
    )
    container: str | None = Field(
        default=None,
        min_length=1,
        description="Image in which Apptainer runs trials, such as `/shared/images/torch.sif`. Default: none.",
    )
    folder: str | None = marked(
        "Folder on storage that all nodes share, for code and results. Default: `~/.nni-manager` of the login, or the"
        " experiment's folder without `login`.",
        default=None,
        format="absolute",
    )
    local_folder: str | None = marked(
        "The same folder as the manager's machine mounts it. Default: results are read over the login.",
        default=None,
        format="manager-directory",
    )
    options: list[Annotated[str, Field(pattern=r"^-[^\x00\n]+$")]] = Field(
        default_factory=list,
        description="More options of `sbatch`, such as `[--exclusive, --mail-type=FAIL]`, without those that other"
        " fields set.",
    )
    max_submit: int | None = Field(
        default=None,
        gt=0,
        description="Maximum number of jobs of the account in the queue. Further trials wait. Default: unlimited.",
    )
    poll_interval: float = marked(
        "Time between two `squeue` calls for all experiments of the account: seconds, or `30s`.",
        default=10.0,
        format="seconds",
        ge=5,
    )

    def faults(self, experiment: Json) -> Iterator[Remark]:
        if self.login is not None:
            yield from self.login.wrong_names("login")
        elif self.folder is not None and self.local_folder is not None and self.folder != self.local_folder:
            yield "localFolder", "must be the same as folder without a login; remove it"
        if self.local_folder is not None and self.folder is None:
            yield "folder", "is required with localFolder: the path of that folder on the cluster"
        if self.gpu_type is not None and not self.trial_gpu_number:
            yield "gpuType", "has a meaning only when trialGpuNumber is above 0; set that, or remove this field"
        for number, option in enumerate(self.options):
            if why := refusal_of(option, bool(self.trial_gpu_number)):
                yield f"options[{number}]", why


#: Option of `sbatch` → its field in the section; empty: it has none.
_FIELDS = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "time": "timeLimit",
    "cpus-per-task": "trialCpuNumber",
    "mem": "trialMemorySize",
    "nodes": "nodeNumber",
    "constraint": "constraint",
    "exclude": "exclude",
    **dict.fromkeys(("chdir", "job-name", "output", "error", "input", "export", "export-file"), ""),
    **dict.fromkeys(("requeue", "no-requeue", "signal", "parsable", "quiet", "verbose", "test-only", "wait"), ""),
    **dict.fromkeys(("array", "wrap", "clusters", "cluster", "uid", "gid", "help", "usage", "version"), ""),
}
_GPUS = dict.fromkeys(("gres", "gpus", "gpus-per-node", "gpus-per-task"), "trialGpuNumber and gpuType")
#: Short options without a value, after which another one may follow, as in `-HJname`.
_FLAGS = "HIOQVhksuv"
_SHORT = {
    **{"p": "partition", "A": "account", "q": "qos", "t": "time", "c": "cpus-per-task", "N": "nodes"},
    **{"C": "constraint", "x": "exclude", "D": "chdir", "J": "job-name", "o": "output", "e": "error", "i": "input"},
    **{"a": "array", "M": "clusters", "W": "wait", "Q": "quiet", "v": "verbose", "V": "version", "h": "help"},
    **{"G": "gpus", "u": "usage"},
}
_LONG = re.compile(r"--(?P<name>[A-Za-z-]+)")


def refusal_of(option: str, has_gpus: bool) -> str:
    """Why an option of `options` is refused; empty: it is not. `sbatch` accepts the beginning of an option's name."""
    found = _LONG.match(option)
    names = [found["name"]] if found else _short_names(option[1:])
    ours = {**_FIELDS, **_GPUS} if has_gpus else _FIELDS
    same = next((one for name in names for one in ours if one.startswith(name)), None)
    if same is None:
        return ""
    return f"sets --{same}, which the manager sets; " + (f"use {ours[same]}" if ours[same] else "remove it")


def _short_names(letters: str) -> list[str]:
    """The names of short options that stand together."""
    end = next((at for at, letter in enumerate(letters, 1) if letter not in _FLAGS), len(letters))
    return [_SHORT[letter] for letter in letters[:end] if letter in _SHORT]
