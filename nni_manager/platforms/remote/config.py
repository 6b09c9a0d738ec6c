"""The config section of `remote`. Values arrive canonical, see `platform_kit.section_model`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from nni_manager.domain.experiment import Json
from nni_manager.machines.ssh.login_section import LoginFields
from nni_manager.platform_kit.section_model import (
    NAS_MODE,
    TRIAL,
    FirstFormat,
    GpuIndices,
    PlatformSection,
    Remark,
    gpu_faults,
    gpu_warnings,
    marked,
)


class Machine(LoginFields):
    """One machine, reached by SSH."""

    drain: bool = Field(default=False, description="Start no new trials on this machine. Running trials continue.")
    use_active_gpu: bool = Field(default=False, description="Use GPUs that other processes use.")
    max_trial_number_per_gpu: int | None = Field(
        default=None,
        gt=0,
        description="Maximum number of trials that share a GPU. Default: 1, or, with `trialGpuMemory`, the number that "
        "fit into its memory.",
    )
    gpu_indices: GpuIndices | None = marked(
        'Indices of the GPUs that trials may use: `[0, 1]`, `0` or `"0,1"`. Default: all.',
        default=None,
        format="gpu-indices",
    )
    pre_command: str | None = marked(
        "Shell command that runs before the trial's command; from NNI before 2.0.",
        default=None,
        opaque=True,
        min_length=1,
    )


class RemoteConfig(PlatformSection):
    """The fields of ``trainingService: {platform: remote, …}``."""

    platform: Literal["remote"] = Field(default="remote", description="Always `remote`.")
    machine_list: list[Machine] = Field(min_length=1, description="The machines.")
    trial_gpu_memory: int | None = marked(
        "GPU memory that a trial needs on each of its GPUs, such as `8GB`. Trials share a GPU while its memory "
        "suffices. Stored in MB. Default: the top level's.",
        default=None,
        gt=0,
        format="memory",
    )
    machine_grace_period: float = marked(
        "Time that a machine may be unreachable before its trials are lost and retried elsewhere: seconds, or `10m`.",
        default=600.0,
        format="seconds",
        gt=0,
    )
    reuse_mode: bool = Field(
        default=False, description="Accepted for NNI's files, without effect: each trial has a job of its own."
    )

    def faults(self, experiment: Json) -> Iterator[Remark]:
        for number, machine in enumerate(self.machine_list):
            yield from gpu_faults(
                self.trial_gpu_number,
                gpu_indices=machine.gpu_indices,
                max_trial_number_per_gpu=machine.max_trial_number_per_gpu,
                above=f"machineList[{number}].",
            )
        yield from gpu_faults(
            self.trial_gpu_number, gpu_indices=None, max_trial_number_per_gpu=None, gpu_memory=self.trial_gpu_memory
        )
        yield from self._doubles()
        for number, machine in enumerate(self.machine_list):
            yield from machine.wrong_names(f"machineList[{number}]")

    def _doubles(self) -> Iterator[Remark]:
        known = set()
        for number, machine in enumerate(self.machine_list):
            place = (machine.host, machine.port, machine.user, machine.proxy_jump)
            if place in known:
                yield f"machineList[{number}]", "is a duplicate of another machine; remove it"
            known.add(place)

    def warnings(self, experiment: Json) -> Iterator[Remark]:
        for number, machine in enumerate(self.machine_list):
            yield from gpu_warnings(
                self.trial_gpu_number,
                gpu_indices=machine.gpu_indices,
                use_active_gpu=machine.use_active_gpu,
                above=f"machineList[{number}].",
            )


#: The section in NNI's first format.
FIRST_FORMAT = FirstFormat(
    fields={
        **TRIAL,
        "remoteConfig.reuse": "reuseMode",
        "machineList[].ip": "machineList[].host",
        "machineList[].port": "machineList[].port",
        "machineList[].username": "machineList[].user",
        "machineList[].passwd": "machineList[].password",
        "machineList[].sshKeyPath": "machineList[].sshKeyFile",
        "machineList[].passphrase": "machineList[].sshPassphrase",
        "machineList[].gpuIndices": "machineList[].gpuIndices",
        "machineList[].maxTrialNumPerGpu": "machineList[].maxTrialNumberPerGpu",
        "machineList[].useActiveGpu": "machineList[].useActiveGpu",
        "machineList[].pythonPath": "machineList[].pythonPath",
        "machineList[].preCommand": "machineList[].preCommand",
    },
    required=("trial.command", "trial.codeDir", "machineList"),
    dropped=NAS_MODE,
    ours=("machineList[].preCommand",),
)
